//! File-call shim that shows programs a view of /sys/class/infiniband
