//! Drives the protocols over sockets and memory: clocks, completion queues, progress
