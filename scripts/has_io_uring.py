"""Exit 0 if the kernel gives this process an io_uring, else 1 with the reason."""

import ctypes
import os
import sys

IO_URING_SETUP = 425  # the same number on every architecture


def main() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    if fd < 0:
        print(f"no io_uring here: {os.strerror(ctypes.get_errno())}")
        return 1
    os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
