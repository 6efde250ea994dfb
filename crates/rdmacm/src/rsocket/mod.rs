//! rsockets: sockets calls over queue pairs. Uses the C interface of `rdma_cma.h` and `verbs.h`
//! (`feroce_verbs_abi::functions`), like a program.
