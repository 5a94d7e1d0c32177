# SPDX-License-Identifier: GPL-2.0-only
"""Frames as user/wire/ has them, for tests that play a peer or stand between two."""
import collections
import struct

MAGIC, VERSION = 0x54575447, 6
HELLO, BLOCKS, READY, PING, PONG, RAM, ROUND, ACK, VERIFY = 1, 2, 3, 4, 5, 6, 7, 8, 9
SWITCHOVER, COMMIT, DEVICE, DEVICE_END, RESUMED, ABORT, STREAMS, JOIN, CHECK = 10, 12, 13, 14, 15, 16, 17, 18, 19
PRIVATE, DONE, ASK, VERDICT, VIEW, KEEP, RECONNECT, PACKED, LOAD, DELTA = 23, 24, 25, 26, 29, 30, 31, 32, 33, 34
POSTCOPY_ASK, CANNOT, OWED, WANT, COMPLETE, RECOVER, FAULTS = 35, 36, 37, 38, 39, 40, 41
REUSE, WANT_HASHES, HASHES, REFERENCES, REFUSED = 42, 43, 44, 45, 46
VERDICTS, VIEWS, ONE_WAY, RECONNECTS = 1, 4, 8, 16	# features
FILL, LZ4, ZSTD, ZLIB, LOADS, DELTAS, POSTCOPY = 32, 64, 128, 256, 512, 1024, 2048
REUSES, REUSES_SOON = 8192, 65536
CODECS = {'lz4': LZ4, 'zstd': ZSTD, 'zlib': ZLIB}
HELD, MORE = 64, 8	# flags of DEVICE, VIEW
HEADER = struct.Struct('<IHHIIQ')
Head = collections.namedtuple('Head', 'magic kind flags arg length reserved')


def frame(kind, arg=0, body=b'', magic=MAGIC, flags=0):
    return HEADER.pack(magic, kind, flags, arg, len(body), 0) + body


def hello(version=VERSION, offers=VERDICTS | ONE_WAY, needs=ONE_WAY):
    return frame(HELLO, version, struct.pack('<QQ', offers, needs))


def extent(kind, pages, first):
    return struct.pack('<HHIQ', 0, kind, pages, first)
