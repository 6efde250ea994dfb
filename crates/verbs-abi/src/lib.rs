//! The repr(C) mirror of infiniband/verbs.h, with layout asserts
