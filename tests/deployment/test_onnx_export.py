"""What ONNX lacks is named."""

import builtins

import pytest

from ldrf.deployment.onnx_export import need_onnx
from ldrf.errors import LdrfError


def test_a_package_that_is_missing_is_named_with_the_extra(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "onnxscript":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(LdrfError, match=r"ONNX needs onnxscript: pip install 'ldrf\[onnx\]'"):
        need_onnx("onnx", "onnxscript")
