//! Header views of MetaRoCE: the bytes as they lie on the wire, all numbers in network order.
//! Every bit pattern is a valid view; meaning is checked by [`Frame::parse`](super::Frame::parse).
//!
//! docs/spec/metaroce/packets.md has the same fields as tables.
#![allow(
    unnameable_types,
    reason = "the derives make helper types for public fields"
)]

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $len:expr, {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable,
            KnownLayout, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $name {
            /// Length on the wire, in bytes.
            pub const LEN: usize = $len;
        }
        const _: () = assert!(size_of::<$name>() == $name::LEN && align_of::<$name>() == 1);
    };
}

view! {
    /// What every packet begins with.
    Common, 16, {
        /// Version in the upper, packet type in the lower four bits.
        version_type: u8,
        /// See [`Flags`](super::Flags).
        flags: u8,
        /// Path of the sender (of an acknowledgement: the path that it acknowledges).
        path: u8,
        /// Epoch of that path.
        epoch: u8,
        /// The connection, by the name its receiver chose.
        connection: U64,
        /// Number of the transmission on that path and epoch.
        number: U32,
    }
}

view! {
    /// Offer and acceptance of a connection; the addresses of its planes follow.
    HandshakeView, 48, {
        /// The name under which the sender wants to be addressed.
        source: U64,
        /// Chosen by the initiator, repeated by the acceptor.
        nonce: U64,
        /// From a retry; 0 in a first offer.
        cookie: U64,
        /// A stream of the receiver: tells which process of an address is meant.
        target: U32,
        /// A stream of the sender.
        origin: U32,
        /// Lowest version the sender speaks.
        version_min: u8,
        /// Highest version the sender speaks.
        version_max: u8,
        /// Longest payload of a packet that the sender takes, in bytes.
        segment: U16,
        /// Feature bits; none is defined in version 0.
        features: U32,
        /// Inbound bandwidth of one plane of the sender, in units of 1000 bytes per second.
        line_rate: U32,
        /// Unconfirmed messages per stream that the sender keeps track of.
        message_window: U16,
        /// Paths on which the sender is ready to receive.
        paths: u8,
        /// Addresses that follow.
        planes: u8,
    }
}

view! {
    /// Asks for the offer again, with a cookie.
    RetryView, 20, {
        /// The nonce of the offer.
        nonce: U64,
        /// To be put into the next offer.
        cookie: U64,
        /// Lowest version of the sender.
        version_min: u8,
        /// Highest version of the sender.
        version_max: u8,
        /// Zero.
        reserved: U16,
    }
}

view! {
    /// Refuses an offer.
    RefuseView, 12, {
        /// The nonce of the offer.
        nonce: U64,
        /// See [`RefuseCode`](super::RefuseCode).
        code: U32,
    }
}

view! {
    /// A piece of a request.
    RequestView, 24, {
        /// See [`RequestOpcode`](super::RequestOpcode).
        opcode: u8,
        /// Bit 7: solicited event.
        flags: u8,
        /// Zero.
        reserved: U16,
        /// The receiver's stream.
        stream: U32,
        /// The message.
        message: U32,
        /// First byte of this piece within the message.
        offset: U32,
        /// Bytes of the whole message.
        length: U32,
        /// The receive that the message uses; 0 when it uses none.
        receive: U32,
    }
}

view! {
    /// Where a message goes to or comes from in the receiver's memory.
    RemoteView, 12, {
        /// Address of the first byte of the *message*.
        address: U64,
        /// Key.
        key: U32,
    }
}

view! {
    /// Operands of an atomic.
    AtomicView, 16, {
        /// Value to swap in or to add.
        operand: U64,
        /// Value compared with; 0 for an addition.
        compare: U64,
    }
}

view! {
    /// Queue key and sender of a datagram.
    DatagramView, 8, {
        /// Queue key.
        key: U32,
        /// The sender's stream.
        source: U32,
    }
}

view! {
    /// Immediate data, a key to invalidate, what to flush, or a delay.
    WordView, 4, {
        /// The word.
        word: U32,
    }
}

view! {
    /// A piece of a response.
    ResponseView, 20, {
        /// See [`ResponseOpcode`](super::ResponseOpcode).
        opcode: u8,
        /// Of a refusal: see [`RefusalCode`](super::RefusalCode).
        code: u8,
        /// Zero.
        reserved: U16,
        /// The requester's stream.
        stream: U32,
        /// The message that is answered.
        message: U32,
        /// First byte of this piece within the answer.
        offset: U32,
        /// Bytes of the whole answer; of a refusal: nanoseconds to wait.
        length: U32,
    }
}

view! {
    /// Value of a word before an atomic.
    OriginalView, 8, {
        /// The value.
        original: U64,
    }
}

view! {
    /// Acknowledges packets of one path; updates of streams follow.
    AckView, 52, {
        /// Bit 0 of the first byte: the number before the one in the common header.
        vector: [u8; 32],
        /// From the arrival of the highest number to this acknowledgement, in nanoseconds.
        delay: U32,
        /// Packets of this path and epoch received so far.
        received: U32,
        /// How many of those carried a congestion mark.
        marked: U32,
        /// Granted share, in units of 1000 bytes per second; all ones: no limit.
        share: U32,
        /// Zero.
        reserved: [u8; 3],
        /// Updates that follow.
        updates: u8,
    }
}

view! {
    /// How far a stream has come at its responder.
    UpdateView, 16, {
        /// The requester's stream.
        stream: U32,
        /// Every message before this one is complete.
        completed: U32,
        /// Receives before this one are posted.
        limit: U32,
        /// Five-bit code of the time a requester without a receive waits (IBTA table 45).
        delay: u8,
        /// Bit 7: receives are shared, `limit` says nothing.
        flags: u8,
        /// Zero.
        reserved: U16,
    }
}

view! {
    /// Number of entries that follow: streams in a probe, updates in an update.
    CountView, 4, {
        /// Zero.
        reserved: [u8; 3],
        /// Entries.
        count: u8,
    }
}

view! {
    /// Ends a connection.
    CloseView, 12, {
        /// The name under which the sender of this packet is addressed.
        source: U64,
        /// See [`CloseCode`](super::CloseCode).
        code: U16,
        /// Bit 15: answers a close.
        flags: U16,
    }
}
