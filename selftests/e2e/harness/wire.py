# SPDX-License-Identifier: GPL-2.0-only
"""Frames as user/wire/wire.h has them, for whoever plays a peer or stands between two."""
import struct

MAGIC, VERSION = 0x54575447, 6
HELLO, BLOCKS, READY, PING, PONG, RAM, ROUND, ACK = 1, 2, 3, 4, 5, 6, 7, 8
COMMIT, DEVICE, DEVICE_END, RESUMED, ABORT, STREAMS, JOIN = 12, 13, 14, 15, 16, 17, 18
DONE, ASK, VERDICT = 24, 25, 26
VERDICTS, VIEWS = 1, 4	# features
HEADER = struct.Struct('<IHHIIQ')	# magic, type, flags, arg, length, reserved


def frame(kind, arg=0, body=b'', magic=MAGIC, flags=0):
    return HEADER.pack(magic, kind, flags, arg, len(body), 0) + body


def hello(version=VERSION, offers=VERDICTS, needs=0):
    return frame(HELLO, version, struct.pack('<QQ', offers, needs))
