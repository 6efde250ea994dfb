//! Packets to and from the machine: UDP sockets, slots, interfaces, impairment
