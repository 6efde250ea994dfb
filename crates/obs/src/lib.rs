//! Counters, logging and pcapng captures
