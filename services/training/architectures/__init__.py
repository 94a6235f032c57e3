"""Small networks by name, for `factory:services.training.architectures:NAME?...` and for training.

They map normalised images to logits; normalisation belongs to the input contract.
"""

from services.training.architectures.cifar_resnet import CifarResNet, cifar_resnet
from services.training.architectures.layers import sequential
from services.training.architectures.resnet2b import ResNet2b, resnet2b
from services.training.architectures.small_cnn import small_cnn

__all__ = ["CifarResNet", "ResNet2b", "cifar_resnet", "resnet2b", "sequential", "small_cnn"]
