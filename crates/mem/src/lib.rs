//! Memory regions and windows: the one unsafe door to application memory
