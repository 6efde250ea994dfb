//! What a [`crate::Net`] counts.

/// Plain counts since the device was opened; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams handed to the receiver, forwarded ones included.
    pub datagrams_in: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes_in: u64,
    /// Datagrams given to the kernel.
    pub datagrams_out: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes_out: u64,
    /// System calls made to receive, fruitless ones included.
    pub receive_calls: u64,
    /// System calls made to send.
    pub send_calls: u64,
    /// Looks at all sockets at once.
    pub poll_calls: u64,
    /// Received messages in which the kernel had joined several datagrams.
    pub batches_in: u64,
    /// Sent messages the kernel was to cut into several datagrams.
    pub batches_out: u64,
    /// Received messages that held several datagrams from a process of this host.
    pub bundles_in: u64,
    /// Messages sent that held several datagrams for a process of this host.
    pub bundles_out: u64,
    /// Datagrams other processes handed on to this one.
    pub forwarded_in: u64,
    /// Datagrams handed on to other processes.
    pub forwarded_out: u64,
    /// Datagrams for other processes that could not be handed on (owner gone or queue full).
    pub forward_dropped: u64,
    /// Sends refused for want of buffer; nothing was sent.
    pub busy: u64,
    /// Datagrams the kernel dropped because a receive buffer was full.
    pub overflowed: u64,
    /// Datagrams the firewall of this host refused to send.
    pub denied: u64,
    /// Datagrams lost because a batch could not be sent to its end one by one.
    pub cut_short: u64,
    /// Datagrams from other hosts on a private port, dropped.
    pub strangers: u64,
    /// Slot messages of other users, dropped.
    pub foreign_users: u64,
    /// Slot messages or datagrams that made no sense, dropped.
    pub malformed: u64,
    /// Slot messages dropped because the caller did not take them.
    pub messages_dropped: u64,
    /// Questions for a private port sent to other slots.
    pub queries: u64,
    /// Destinations for which the kernel refused to cut batches.
    pub unsegmented: u64,
    /// Sockets opened for a single remote flow.
    pub flows_opened: u64,
    /// Marks put behind what was sent to processes of this host, to learn when it was taken.
    pub marks_out: u64,
    /// Answers to marks of other processes of this host.
    pub answers_out: u64,
    /// Answers to our marks that made room.
    pub answers_in: u64,
    /// Times that sending to a process of this host had to wait for room in its socket.
    pub room_waits: u64,
    /// Times that a process of this host was not waited for any longer.
    pub room_resets: u64,
}

impl Counters {
    /// Name and value of every count, for reports.
    #[must_use]
    pub const fn fields(&self) -> [(&'static str, u64); 30] {
        [
            ("datagrams_in", self.datagrams_in),
            ("bytes_in", self.bytes_in),
            ("datagrams_out", self.datagrams_out),
            ("bytes_out", self.bytes_out),
            ("receive_calls", self.receive_calls),
            ("send_calls", self.send_calls),
            ("poll_calls", self.poll_calls),
            ("batches_in", self.batches_in),
            ("batches_out", self.batches_out),
            ("bundles_in", self.bundles_in),
            ("bundles_out", self.bundles_out),
            ("forwarded_in", self.forwarded_in),
            ("forwarded_out", self.forwarded_out),
            ("forward_dropped", self.forward_dropped),
            ("busy", self.busy),
            ("overflowed", self.overflowed),
            ("denied", self.denied),
            ("cut_short", self.cut_short),
            ("strangers", self.strangers),
            ("foreign_users", self.foreign_users),
            ("malformed", self.malformed),
            ("messages_dropped", self.messages_dropped),
            ("queries", self.queries),
            ("unsegmented", self.unsegmented),
            ("flows_opened", self.flows_opened),
            ("marks_out", self.marks_out),
            ("answers_out", self.answers_out),
            ("answers_in", self.answers_in),
            ("room_waits", self.room_waits),
            ("room_resets", self.room_resets),
        ]
    }
}
