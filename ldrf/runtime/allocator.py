"""How the process gets memory for large tensors on Linux."""

import ctypes
import os
from typing import Any

EVERY = 4  # chunks: to touch returned memory again costs time
SHARE = 2  # the heap may grow to one part in so many of the machine's memory before it is asked for again
HUGE_PAGES = 14  # MADV_HUGEPAGE
HUGE_PAGE = 2**21  # bytes


def give_back(chunk: int = 0) -> None:
    """Return what was freed to the system, at every fourth chunk: other blocks need not lie beside it then."""
    if chunk % EVERY:
        return
    try:
        libc = _libc()
        libc.malloc_trim(0)
        _reserve(libc)
    except (OSError, AttributeError):
        return


def keep_large_blocks() -> None:
    """Tell glibc to reuse large blocks instead of returning them, and to get them in huge pages.

    The system hands out memory page by page as it is first touched. For a map of 35 MB that takes ten times as long as
    the sum that is written there.
    """
    try:
        libc = _libc()
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no separate mapping a tensor
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: keep what was freed
        _reserve(libc)
    except (OSError, AttributeError):
        return


def _libc() -> Any:
    libc = ctypes.CDLL("libc.so.6")
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _reserve(libc: Any) -> None:
    """Let the heap grow by addresses alone, which take no memory yet, and ask for huge pages there.

    Where large blocks are not kept they do not lie in the heap: then it does not grow, and nothing is asked for.
    """
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // SHARE
    start = -(-libc.sbrk(0) // HUGE_PAGE) * HUGE_PAGE
    libc.free(libc.malloc(size))
    end = libc.sbrk(0)
    if end > start:
        libc.madvise(start, end - start, HUGE_PAGES)
