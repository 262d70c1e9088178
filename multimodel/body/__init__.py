"""The shared body and its blocks: layers that also work alone in any Keras model."""

from multimodel.body.attention import AttentionBlock
from multimodel.body.block import Block
from multimodel.body.body import Body
from multimodel.body.conv import ConvBlock, ConvStep
from multimodel.body.moe import MoEBlock

__all__ = ["AttentionBlock", "Block", "Body", "ConvBlock", "ConvStep", "MoEBlock"]
