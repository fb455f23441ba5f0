//! Lists each field of a datagram with its position, its value and its rule in PROTOCOL.md.

use bcnet_transport::wire::{Ack, Body, Control, Data, Datagram, Field, Fragment, Message, Text};

/// One field on the wire.
pub(super) struct FieldRow {
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) field: Field,
    pub(super) value: String,
    pub(super) rule: &'static str,
}

/// Returns the fields of the datagram header: sender and count.
pub(super) fn datagram(datagram: &Datagram<'_>) -> Vec<FieldRow> {
    let mut rows = FieldRows { at: 0, rows: Vec::new() };
    rows.add(1, Field::Sender, format!("0x{:02X} {}", datagram.sender().0, datagram.sender()), "T-02");
    rows.add(1, Field::Count, datagram.count().to_string(), "T-03");
    rows.rows
}

/// Returns the fields of a message that starts at byte `at`.
pub(super) fn message(message: &Message<'_>, at: usize) -> Vec<FieldRow> {
    let mut rows = FieldRows { at, rows: Vec::new() };
    let kind = message.kind();
    rows.add(1, Field::Type, format!("0x{:02X} {kind}", kind.0), "T-10");
    match message {
        Message::Ack(ack) => rows.ack(*ack),
        Message::Keepalive => {}
        Message::Control(control) => rows.control(control, message.wire_len()),
        Message::Data(data) => rows.data(data, message.wire_len()),
    }
    rows.rows
}

struct FieldRows {
    at: usize,
    rows: Vec<FieldRow>,
}

impl FieldRows {
    fn add(&mut self, len: usize, field: Field, value: String, rule: &'static str) {
        self.rows.push(FieldRow { at: self.at, len, field, value, rule });
        self.at += len;
    }

    fn text(&mut self, field: Field, text: Text<'_>) {
        self.add(text.as_bytes().len() + 2, field, text.quoted().to_string(), "T-39");
    }

    fn ack(&mut self, Ack { id, reserved: spare }: Ack) {
        self.add(2, Field::Sequence, id.seq.0.to_string(), "T-30");
        let part = if id.fragment.is_some() { " part" } else { "" };
        let spare = if spare == 0 { String::new() } else { format!(" spare 0x{spare:02X}") };
        self.add(1, Field::Flags, format!("{}{part}{spare}", id.channel), "T-31");
        if let Some(part) = id.fragment {
            self.add(1, Field::Part, part.to_string(), "T-30");
        }
    }

    fn size(&mut self, size: usize, flags: &[(bool, &str)], rule: &'static str) {
        let set = flags.iter().filter(|(set, _)| *set).map(|(_, name)| format!(" {name}"));
        self.add(2, Field::Size, format!("{size}{}", set.collect::<String>()), rule);
    }

    fn control(&mut self, control: &Control<'_>, size: usize) {
        self.size(size, &[(control.reliable, "reliable"), (control.urgent, "urgent")], "T-13");
        self.add(2, Field::Sequence, control.seq.0.to_string(), "T-16");
        match control.body {
            Body::Identity { peer, address, name } => {
                self.add(1, Field::Peer, peer.to_string(), "T-36");
                self.add(4, Field::Address, address.to_string(), "T-25");
                self.text(Field::Name, name);
            }
            Body::ConnectRequest { address, nonce, password } => {
                self.add(4, Field::Address, address.to_string(), "T-25");
                self.add(4, Field::Nonce, format!("0x{nonce:08X}"), "T-33");
                self.text(Field::Password, password);
            }
            Body::ConnectReply { assigned } => self.add(1, Field::Assigned, assigned.to_string(), "T-34"),
            Body::Boot { reason, target } => {
                self.add(1, Field::BootReason, reason.to_string(), "T-37");
                self.add(1, Field::Target, target.to_string(), "T-37");
            }
            Body::Disconnect { peer, address } => {
                self.add(1, Field::Peer, peer.to_string(), "T-38");
                self.add(4, Field::Address, address.to_string(), "T-25");
            }
        }
        if !control.tail.is_empty() {
            self.add(control.tail.len(), Field::Tail, format!("{} bytes", control.tail.len()), "T-14");
        }
    }

    fn data(&mut self, data: &Data<'_>, size: usize) {
        let (seq, part) = (data.delivery.seq(), data.delivery.fragment());
        let flags = [(seq.is_some(), "reliable"), (data.urgent, "urgent"), (part.is_some(), "part")];
        self.size(size, &flags, "T-12");
        if let Some(seq) = seq {
            self.add(2, Field::Sequence, seq.0.to_string(), "T-15");
        }
        if let Some(part) = part {
            self.add(1, Field::Part, part.index().to_string(), "T-20");
        }
        if let Some(Fragment::First { total }) = part {
            self.add(1, Field::Total, total.to_string(), "T-20");
        }
        self.add(data.payload.len(), Field::Payload, format!("{} bytes", data.payload.len()), "T-14");
    }
}

/// The length of sender and count, before the first message.
pub(super) const DATAGRAM_HEADER_LEN: usize = 2;
