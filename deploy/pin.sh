#!/usr/bin/env bash
# Pins images to what their registries serve now: a tag may be pushed again, a digest names one content.
#   kubectl kustomize deploy/kubernetes | deploy/pin.sh REGISTRY/ | kubectl apply -f -
#   deploy/pin.sh REGISTRY/ < deploy/compose.yaml > compose.pinned.yaml
# REGISTRY/ stands before classwise's own images. Needs skopeo; SKOPEO_OPTIONS are passed to its inspect.
set -euo pipefail
registry=${1:?the registry of the classwise images, with a slash at its end}
command -v skopeo >/dev/null || {
  echo "pin: expected skopeo, found none: install it" >&2
  exit 2
}
text=$(cat)
while read -r image; do
  case $image in *@sha256:*) continue ;; classwise:*) from=$registry$image ;; *) from=$image ;; esac
  # shellcheck disable=SC2086 # options are words
  digest=$(skopeo inspect ${SKOPEO_OPTIONS:-} --format '{{.Digest}}' "docker://$from")
  pattern=$(printf '%s' "$image" | sed 's/[.\/]/\\&/g')
  text=$(printf '%s\n' "$text" | sed -E "s/(image: +)$pattern *\$/\\1$(printf '%s' "$from@$digest" | sed 's/[\/&]/\\&/g')/")
done < <(printf '%s\n' "$text" | sed -nE 's/^ *-? *image: +(\S+) *$/\1/p' | sort -u)
printf '%s\n' "$text"
