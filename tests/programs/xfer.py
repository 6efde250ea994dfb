#!/usr/bin/python3
"""Moves bytes between two RDMA devices in every way and checks each one.

Stock benchmarks do not look at the data. This program does: contents, lengths, immediate values,
old values of atomics, and that nothing around a transfer was touched. It needs python3-pyverbs and
runs on any verbs device, the same program on both ends:

    xfer.py --address 10.9.0.1                                  waits for a peer
    xfer.py --address 10.9.0.2 --peer 10.9.0.1                  connects to it

The address is the local one and chooses the GID. Both ends take turns as requester, so one run
covers both directions. The first difference ends both with status 1 and a sentence.
"""

import argparse
import ipaddress
import json
import random
import select
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT_NUMBER = 1
GRH_BYTES = 40
GUARD_BYTES = 64
GUARD = 0xA5
QKEY = 0x1EE7
# How long unacknowledged packets may still be under way when the peer has said that it sent them.
AFTERWARDS_SECONDS = 5
MTUS = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024,
        2048: e.IBV_MTU_2048, 4096: e.IBV_MTU_4096}
ATOMICS = ('cas', 'fadd')
OPERATIONS = {
    'rc': ('write', 'write_imm', 'read', 'send', 'send_imm') + ATOMICS,
    'uc': ('write', 'write_imm', 'send', 'send_imm'),
    'ud': ('send', 'send_imm'),
}
# Operations that use up a receive request.
RECEIVED = ('write_imm', 'send', 'send_imm')
OPCODES = {
    'write': e.IBV_WR_RDMA_WRITE, 'write_imm': e.IBV_WR_RDMA_WRITE_WITH_IMM,
    'read': e.IBV_WR_RDMA_READ, 'send': e.IBV_WR_SEND, 'send_imm': e.IBV_WR_SEND_WITH_IMM,
    'cas': e.IBV_WR_ATOMIC_CMP_AND_SWP, 'fadd': e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
QP_TYPES = {'rc': e.IBV_QPT_RC, 'uc': e.IBV_QPT_UC, 'ud': e.IBV_QPT_UD}


class Wrong(Exception):
    """Something arrived that should not have, or did not arrive."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--address', required=True, help='local address: chooses the GID')
    parser.add_argument('--peer', help='address of the waiting end')
    parser.add_argument('--device', help='default: the first with the address')
    parser.add_argument('--port', type=int, default=18600, help='TCP port to meet at')
    parser.add_argument('--service', choices=OPERATIONS, default='rc')
    parser.add_argument('--operations', help='a comma-separated choice')
    parser.add_argument('--mtu', type=int, choices=MTUS, default=1024)
    parser.add_argument('--sizes', default='0,1,2,3,mtu-1,mtu,mtu+1,65536,1048576',
                        help='payload lengths; mtu stands for the path MTU')
    parser.add_argument('--depth', type=int, default=4, help='requests in flight')
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--seed', type=int, default=1, help='of the contents')
    parser.add_argument('--limit', type=float, default=60, help='seconds for one step')
    options = parser.parse_args()
    options.sizes = [size_of(text, options.mtu) for text in options.sizes.split(',')]
    if options.service == 'ud':
        options.sizes = [size for size in options.sizes if size <= options.mtu]
    names = OPERATIONS[options.service]
    if options.operations:
        names = options.operations.split(',')
        for name in names:
            if name not in OPERATIONS[options.service]:
                parser.error(f'{options.service} has no operation {name}')
    options.operations = names
    return options


def size_of(text, mtu):
    """`mtu`, `mtu-1`, `mtu+1` or a number."""
    if not text.startswith('mtu'):
        return int(text)
    return mtu + int(text[3:] or 0)


class Line:
    """JSON messages between the two programs."""

    def __init__(self, connection, limit):
        self.connection = connection
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.settimeout(2 * limit)
        self.reader = connection.makefile('r')

    def say(self, **message):
        self.connection.sendall((json.dumps(message) + '\n').encode())

    def has_message(self):
        return bool(select.select([self.connection], [], [], 0)[0])

    def hear(self):
        text = self.reader.readline()
        if not text:
            raise Wrong('the peer ended')
        message = json.loads(text)
        if 'wrong' in message:
            raise Wrong('the peer says: ' + message['wrong'])
        return message


def meet(options):
    if options.peer:
        return Line(socket.create_connection((options.peer, options.port), 10), options.limit)
    family = socket.AF_INET6 if ':' in options.address else socket.AF_INET
    with socket.create_server((options.address, options.port), family=family) as listener:
        listener.settimeout(options.limit)
        return Line(listener.accept()[0], options.limit)


def find_gid(options):
    """The device and GID index that stand for the local address."""
    address = ipaddress.ip_address(options.address)
    wanted = address if address.version == 6 else ipaddress.ip_address(f'::ffff:{address}')
    names = [device.name.decode() for device in get_device_list()]
    for name in [options.device] if options.device else names:
        context = Context(name=name)
        for index in range(context.query_port(PORT_NUMBER).gid_tbl_len):
            if ipaddress.ip_address(str(context.query_gid(PORT_NUMBER, index))) == wanted:
                return context, index
    raise Wrong(f'no GID of {options.device or names} stands for {options.address}')


class End:
    """One queue pair with its memory."""

    def __init__(self, options):
        self.options = options
        self.unreliable = options.service == 'ud'
        self.context, self.gid_index = find_gid(options)
        self.pd = PD(self.context)
        self.stride = GRH_BYTES + max(options.sizes + [8]) + 2 * GUARD_BYTES
        self.stride += -self.stride % 64
        access = e.IBV_ACCESS_LOCAL_WRITE
        if not self.unreliable:
            access |= e.IBV_ACCESS_REMOTE_WRITE
        if options.service == 'rc':
            access |= e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        self.access = access
        self.memory = MR(self.pd, self.stride * options.depth, access)
        self.cq = CQ(self.context, 4 * options.depth + 1)
        capabilities = QPCap(max_send_wr=options.depth, max_recv_wr=options.depth,
                             max_send_sge=1, max_recv_sge=1)
        kind = QP_TYPES[options.service]
        self.qp = QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq,
                                         cap=capabilities, sq_sig_all=1))
        self.psn = random.SystemRandom().getrandbits(24)
        self.handle = None

    def describe(self):
        gid = self.context.query_gid(PORT_NUMBER, self.gid_index)
        return {'qpn': self.qp.qp_num, 'psn': self.psn, 'gid': str(gid),
                'key': self.memory.rkey, 'address': self.memory.buf, 'stride': self.stride,
                'sizes': self.options.sizes, 'operations': list(self.options.operations),
                'depth': self.options.depth, 'rounds': self.options.rounds}

    def connect(self, peer):
        mine = self.describe()
        for item in ('sizes', 'operations', 'depth', 'rounds'):
            if mine[item] != peer[item]:
                raise Wrong(f'the two ends were started with different {item}')
        self.peer = peer
        route = GlobalRoute(dgid=GID(peer['gid']), sgid_index=self.gid_index)
        path = AHAttr(gr=route, is_global=1, port_num=PORT_NUMBER)
        attributes = QPAttr(port_num=PORT_NUMBER)
        if self.unreliable:
            attributes.qkey = QKEY
            attributes.sq_psn = self.psn
            self.qp.to_rts(attributes)
            self.handle = AH(self.pd, attr=path)
            return
        attributes.qp_access_flags = self.access
        attributes.ah_attr = path
        attributes.path_mtu = MTUS[self.options.mtu]
        attributes.dest_qp_num = peer['qpn']
        attributes.rq_psn = peer['psn']
        attributes.sq_psn = self.psn
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4
        attributes.min_rnr_timer = 12
        attributes.timeout = 14
        attributes.retry_cnt = attributes.rnr_retry = 7
        self.qp.to_rts(attributes)

    def start_of(self, slot):
        return slot * self.stride + GUARD_BYTES

    def clear(self):
        self.memory.write(bytes([GUARD]) * (self.stride * self.options.depth),
                          self.stride * self.options.depth)

    def fill(self, slot, data):
        if data:
            self.memory.write(data, len(data), self.start_of(slot))

    def content(self, slot, size):
        return self.memory.read(size, self.start_of(slot)) if size else b''

    def receive(self, slot, size):
        room = size + (GRH_BYTES if self.unreliable else 0)
        piece = SGE(self.memory.buf + self.start_of(slot), room, self.memory.lkey)
        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[piece]))

    def request(self, operation, slot, size, immediate):
        piece = SGE(self.memory.buf + self.start_of(slot), size, self.memory.lkey)
        # pyverbs insists on a piece, so an empty message is one piece of length 0.
        request = SendWR(wr_id=slot, num_sge=1, sg=[piece], opcode=OPCODES[operation],
                         send_flags=e.IBV_SEND_SIGNALED, imm_data=immediate)
        # The peer's guard is at the same distance, in a slot of its own stride.
        address = self.peer['address'] + slot * self.peer['stride'] + GUARD_BYTES
        if operation in ('write', 'write_imm', 'read'):
            request.set_wr_rdma(self.peer['key'], address)
        elif operation in ATOMICS:
            request.set_wr_atomic(self.peer['key'], address, *atomic_operands(slot))
        if self.unreliable:
            request.set_wr_ud(self.handle, self.peer['qpn'], QKEY)
        self.qp.post_send(request)

    def completions(self, count, line):
        """That many completions, in the order they came."""
        found = []
        deadline = time.monotonic() + self.options.limit
        while len(found) < count:
            number, entries = self.cq.poll(count - len(found))
            found.extend(entries or [])
            if number:
                continue
            if line.has_message():
                # The peer is done or has failed: what it sent is on its way for a moment at most.
                deadline = min(deadline, time.monotonic() + AFTERWARDS_SECONDS)
            if time.monotonic() > deadline:
                if line.has_message():
                    line.hear()
                raise Wrong(f'{len(found)} of {count} completions came in time')
            time.sleep(0.0002)
        for entry in found:
            if entry.status != e.IBV_WC_SUCCESS:
                raise Wrong(f'request {entry.wr_id} completed with status {entry.status}')
        return found

    def check(self, slot, data, before=0):
        """The slot holds `data` after `before` bytes of any kind, and guards around."""
        offset = slot * self.stride
        found = self.memory.read(self.stride, offset)
        start = GUARD_BYTES + before
        end = start + len(data)
        if found[start:end] != data:
            at = next(i for i, byte in enumerate(data) if found[start + i] != byte)
            raise Wrong(f'slot {slot}: byte {at} of {len(data)} is '
                        f'{found[start + at]:#x}, not {data[at]:#x}')
        around = found[:GUARD_BYTES] + found[end:]
        if around != bytes([GUARD]) * len(around):
            raise Wrong(f'slot {slot}: bytes around the {len(data)} were changed')


def atomic_operands(slot):
    """(compare or add, swap) of a slot."""
    return 0x0102030405060708 + slot, 0xF0E0D0C0B0A09080 + slot


def atomic_values(operation, slot):
    """(before, after) of a slot; every second compare fails."""
    operand, swap = atomic_operands(slot)
    if operation == 'fadd':
        before = (2**64 - 3) * (slot + 1) % 2**64
        return before, (before + operand) % 2**64
    before = operand if slot % 2 == 0 else operand + 1
    return before, swap if slot % 2 == 0 else before


def immediate_of(slot, size):
    return (size * 7 + slot) % 2**32


def contents(options, step, size):
    source = random.Random(options.seed * 1000003 + step)
    return [source.randbytes(size) for _ in range(options.depth)]


def request_step(end, line, operation, size, step):
    """The requester's half of a step."""
    depth = end.options.depth
    data = contents(end.options, step, size)
    end.clear()
    if operation not in ('read',) + ATOMICS:
        for slot in range(depth):
            end.fill(slot, data[slot])
    line.hear()
    for slot in range(depth):
        end.request(operation, slot, size, immediate_of(slot, size))
    end.completions(depth, line)
    for slot in range(depth):
        if operation in ATOMICS:
            before = atomic_values(operation, slot)[0]
            end.check(slot, struct.pack('=Q', before))
        else:
            end.check(slot, data[slot])
    line.say(done=True)
    line.hear()


def respond_step(end, line, operation, size, step):
    """The responder's half."""
    depth = end.options.depth
    data = contents(end.options, step, size)
    end.clear()
    for slot in range(depth):
        if operation == 'read':
            end.fill(slot, data[slot])
        elif operation in ATOMICS:
            end.fill(slot, struct.pack('=Q', atomic_values(operation, slot)[0]))
        elif operation in RECEIVED:
            end.receive(slot, 0 if operation == 'write_imm' else size)
    line.say(ready=True)
    if operation in RECEIVED:
        check_received(end, line, operation, size)
    line.hear()
    # A datagram's network header lands in front; what it holds is not ours to judge.
    before = GRH_BYTES if end.unreliable else 0
    for slot in range(depth):
        if operation in ATOMICS:
            end.check(slot, struct.pack('=Q', atomic_values(operation, slot)[1]))
        elif operation == 'write' and end.options.service == 'uc':
            await_content(end, slot, data[slot])
        else:
            end.check(slot, data[slot], before)
    line.say(right=True)


def check_received(end, line, operation, size):
    entries = end.completions(end.options.depth, line)
    for slot, entry in enumerate(entries):
        if entry.wr_id != slot:
            raise Wrong(f'receive {entry.wr_id} completed where {slot} was next')
        length = size + (GRH_BYTES if end.unreliable else 0)
        if entry.byte_len != length:
            raise Wrong(f'receive {slot} tells {entry.byte_len} bytes, not {length}')
        if operation == 'send':
            continue
        if not entry.wc_flags & e.IBV_WC_WITH_IMM:
            raise Wrong(f'receive {slot} came without its immediate value')
        if entry.imm_data != immediate_of(slot, size):
            raise Wrong(f'receive {slot}: immediate {entry.imm_data:#x}, '
                        f'not {immediate_of(slot, size):#x}')


def await_content(end, slot, data):
    """An unreliable write tells nobody at its target: look until it is there."""
    deadline = time.monotonic() + AFTERWARDS_SECONDS
    while end.content(slot, len(data)) != data and time.monotonic() < deadline:
        time.sleep(0.001)
    end.check(slot, data)


def run(options):
    end = End(options)
    line = meet(options)
    try:
        line.say(**end.describe())
        end.connect(line.hear())
        # Nobody sends before both can receive.
        line.say(connected=True)
        line.hear()
        step = 0
        for turn in range(2 * options.rounds):
            mine = (turn % 2 == 0) == bool(options.peer)
            for operation in options.operations:
                for size in [8] if operation in ATOMICS else options.sizes:
                    step += 1
                    half = request_step if mine else respond_step
                    try:
                        half(end, line, operation, size, step)
                    except (Wrong, PyverbsError) as wrong:
                        side = 'requester' if mine else 'responder'
                        raise Wrong(f'{operation} of {size} bytes, {side}: {wrong}') from None
        return step
    except (Wrong, PyverbsError) as wrong:
        try:
            line.say(wrong=str(wrong))
        except OSError:
            pass
        raise


def main():
    options = arguments()
    try:
        steps = run(options)
    except (Wrong, PyverbsError, OSError) as error:
        print(f'xfer: {error}')
        return 1
    print(f'xfer: {steps} steps of {options.depth} {options.service} requests were right')
    return 0


if __name__ == '__main__':
    sys.exit(main())
