//! Every byte on the network: headers, opcode table, ICRC, MADs
