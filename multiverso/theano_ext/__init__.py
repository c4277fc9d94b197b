"""Multiverso for programs written with PyTensor, Theano or Aesara.

`multiverso.theano_ext.sharedvar` has shared variables that are synchronized through a table.
Importing this package imports none of the three frameworks.
"""
