//! Sans-IO RDMA transport protocols
