//! Parses one message from the front of the remaining bytes of a datagram.
//!
//! Data and control messages are read in two steps. First the size field is checked against the minimum size
//! of the kind ([T-14]). Then the fields are taken from exactly that many bytes. If the datagram ends
//! earlier, the error names the field that was cut off.
//!
//! The functions for frequent kinds are inlined into their callers on purpose. A caller that only checks a
//! message, or reads only one field, then never builds the message, which halves the cost.
//!
//! [T-14]: crate::protocol#t-14

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::num::NonZeroU8;

use crate::message::{
    ACK_CONTROL, ACK_FRAGMENT, ACK_RESERVED, CONTROL_HEADER_LEN, CONTROL_SIZE_MASK, DATA_SIZE_MASK, FRAGMENT,
    RELIABLE, URGENT,
};
use crate::{
    Ack, Body, BootReason, Channel, Control, Data, Delivery, Field, Fragment, Kind, Message, MessageId,
    PeerId, Role, Seq, Text, WireError, WireErrorReason,
};

/// The known facts about the sender; they distinguish connect requests and replies (T-35).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramOrigin {
    pub(crate) role: Option<Role>,
    pub(crate) sender: Option<PeerId>,
}

impl DatagramOrigin {
    /// Returns whether a connect is a reply (T-35): the host sends replies and everyone else requests.
    ///
    /// Without a role, the sender id decides if it is the id of a client. Otherwise the size decides: a
    /// request is longer than a reply.
    fn is_reply(self, size: usize) -> bool {
        match (self.role, self.sender) {
            (Some(role), _) => role == Role::Host,
            (None, Some(id)) if id == PeerId::UNASSIGNED || id.is_assignable() => false,
            (None, _) => size < MIN_REQUEST_SIZE,
        }
    }
}

/// Parses the message at byte `at` of the datagram from `bytes`; returns it and the bytes behind it.
#[inline(always)]
pub(crate) fn message(
    bytes: &[u8],
    at: usize,
    origin: DatagramOrigin,
) -> Result<(Message<'_>, &[u8]), WireError> {
    let Some(&kind) = bytes.first() else {
        return Err(WireError { at, field: Field::Type, reason: WireErrorReason::Truncated });
    };
    match Kind(kind) {
        Kind::DATA => data(bytes, at),
        Kind::ACK => ack(bytes, at),
        Kind::KEEPALIVE => Ok((Message::Keepalive, bytes.get(1..).unwrap_or_default())),
        Kind::IDENTITY | Kind::CONNECT | Kind::BOOT | Kind::DISCONNECT => control(bytes, at, origin),
        unknown => Err(WireError { at, field: Field::Type, reason: WireErrorReason::UnknownType(unknown) }),
    }
}

/// Parses like [`message`] and adds the message to `messages`.
///
/// Each frequent kind has a separate branch, so that the compiler builds the message inside `messages`.
#[inline(always)]
pub(crate) fn add_message<'a>(
    bytes: &'a [u8],
    at: usize,
    origin: DatagramOrigin,
    messages: &mut Vec<Message<'a>>,
) -> Result<&'a [u8], WireError> {
    let (message, rest) = match bytes.first().map(|kind| Kind(*kind)) {
        Some(Kind::DATA) => {
            let (message, rest) = data(bytes, at)?;
            messages.push(message);
            return Ok(rest);
        }
        Some(Kind::ACK) => {
            let (message, rest) = ack(bytes, at)?;
            messages.push(message);
            return Ok(rest);
        }
        _ => message(bytes, at, origin)?,
    };
    messages.push(message);
    Ok(rest)
}

/// Parses an ACK of a whole message; returns it and the bytes behind it.
///
/// Returns `None` if `bytes` begins with something else or is malformed.
#[inline(always)]
pub fn plain_ack(bytes: &[u8]) -> Option<((Channel, Seq), &[u8])> {
    match *bytes {
        [kind, low, high, flags, ref rest @ ..] if kind == Kind::ACK.0 && flags & ACK_FRAGMENT == 0 => {
            let channel = if flags & ACK_CONTROL == 0 { Channel::Game } else { Channel::Control };
            Some(((channel, Seq(u16::from_le_bytes([low, high]))), rest))
        }
        _ => None,
    }
}

/// A whole reliable game payload.
#[derive(Debug, Clone, Copy)]
pub struct WholeData<'a> {
    /// The sequence number.
    pub seq: Seq,
    /// The bytes that the game sees.
    pub payload: &'a [u8],
}

/// Parses a whole reliable game payload; returns it and the bytes behind it.
///
/// Returns `None` if `bytes` begins with something else or is malformed.
#[inline(always)]
pub fn whole_data(bytes: &[u8]) -> Option<(WholeData<'_>, &[u8])> {
    match *bytes {
        [kind, low, high, a, b, ref rest @ ..] if kind == Kind::DATA.0 => {
            let word = u16::from_le_bytes([low, high]);
            let len = usize::from(word & DATA_SIZE_MASK).checked_sub(5)?;
            let (payload, rest) = rest.split_at_checked(len)?;
            let seq = Seq(u16::from_le_bytes([a, b]));
            (word & (RELIABLE | FRAGMENT) == RELIABLE).then_some((WholeData { seq, payload }, rest))
        }
        _ => None,
    }
}

/// Parses an ACK (T-30, T-31).
#[inline(always)]
fn ack(bytes: &[u8], at: usize) -> Result<(Message<'_>, &[u8]), WireError> {
    let Some((&[_, low, high, flags], rest)) = bytes.split_first_chunk() else {
        return Err(truncated_field_error(
            bytes,
            at,
            &[(1, Field::Type), (2, Field::Sequence), (1, Field::Flags)],
        ));
    };
    let (part, rest) = if flags & ACK_FRAGMENT == 0 {
        (None, rest)
    } else if let Some((&part, rest)) = rest.split_first() {
        (Some(part), rest)
    } else {
        return Err(truncated_error(bytes, at, Field::Part));
    };
    let channel = if flags & ACK_CONTROL == 0 { Channel::Game } else { Channel::Control };
    let id = MessageId { channel, seq: Seq(u16::from_le_bytes([low, high])), fragment: part };
    Ok((Message::Ack(Ack { id, reserved: flags & ACK_RESERVED }), rest))
}

/// Parses a data message (T-12, T-15, T-20).
#[inline(always)]
fn data(bytes: &[u8], at: usize) -> Result<(Message<'_>, &[u8]), WireError> {
    let Some(&[_, low, high]) = bytes.first_chunk() else {
        return Err(truncated_field_error(bytes, at, &[(1, Field::Type), (2, Field::Size)]));
    };
    let word = u16::from_le_bytes([low, high]);
    let size = word & DATA_SIZE_MASK;
    let least = 3 + if word & RELIABLE == 0 { 0 } else { 2 } + if word & FRAGMENT == 0 { 0 } else { 1 };
    if size < least {
        return Err(bad_size_error(at, size, least));
    }
    let Some((message, rest)) = bytes.split_at_checked(usize::from(size)) else {
        return Err(truncated_data_error(bytes, at, word));
    };
    let Some((seq, body)) = sequence(message, word) else {
        return Err(bad_size_error(at, size, least));
    };
    let (delivery, payload) = if word & FRAGMENT == 0 {
        (seq.map_or(Delivery::Unreliable, Delivery::Reliable), body)
    } else {
        let (part, payload) = fragment(body, at + message.len() - body.len(), at, size)?;
        (seq.map_or(Delivery::UnreliableFragment(part), |seq| Delivery::Fragment(seq, part)), payload)
    };
    Ok((Message::Data(Data { delivery, urgent: word & URGENT != 0, payload }), rest))
}

/// Returns the sequence number behind the size field, if bit 15 is set (T-15), and the bytes behind it.
#[inline(always)]
fn sequence(message: &[u8], word: u16) -> Option<(Option<Seq>, &[u8])> {
    let body = message.get(3..)?;
    if word & RELIABLE == 0 {
        return Some((None, body));
    }
    let (seq, body) = body.split_first_chunk()?;
    Some((Some(Seq(u16::from_le_bytes(*seq))), body))
}

/// Returns the index of a fragment and, with index 0, the total (T-20, T-22).
///
/// `body` begins with the index. `at` and `index_at` are the offsets of the message and of the index.
#[inline(always)]
fn fragment(body: &[u8], index_at: usize, at: usize, size: u16) -> Result<(Fragment, &[u8]), WireError> {
    let too_small = || bad_size_error(at, size, size + 1);
    let Some((&index, rest)) = body.split_first() else { return Err(too_small()) };
    if let Some(index) = NonZeroU8::new(index) {
        return Ok((Fragment::Later { index }, rest));
    }
    let Some((&total, rest)) = rest.split_first() else { return Err(too_small()) };
    let zero = WireError {
        at: index_at + 1,
        field: Field::Total,
        reason: WireErrorReason::BadSize { found: 0, least: 1 },
    };
    Ok((Fragment::First { total: NonZeroU8::new(total).ok_or(zero)? }, rest))
}

/// Parses a control message (T-13, T-16, T-33 to T-38).
#[inline(never)]
fn control(bytes: &[u8], at: usize, origin: DatagramOrigin) -> Result<(Message<'_>, &[u8]), WireError> {
    let Some(&[kind, low, high]) = bytes.first_chunk() else {
        return Err(truncated_field_error(bytes, at, &[(1, Field::Type), (2, Field::Size)]));
    };
    let kind = Kind(kind);
    let word = u16::from_le_bytes([low, high]);
    let size = word & CONTROL_SIZE_MASK;
    let reply = kind == Kind::CONNECT && origin.is_reply(usize::from(size));
    let layout = layout(kind, reply);
    let least = layout.iter().map(|(len, _)| len).sum::<u16>();
    if size < least {
        return Err(bad_size_error(at, size, least));
    }
    let Some((message, rest)) = bytes.split_at_checked(usize::from(size)) else {
        return Err(truncated_field_error(bytes, at, layout));
    };
    let Some((&[_, _, _, low, high], body)) = message.split_first_chunk::<CONTROL_HEADER_LEN>() else {
        return Err(bad_size_error(at, size, least));
    };
    let (body, tail) = self::body(kind, reply, body).ok_or_else(|| {
        // Every fixed field fits, so the text at the end is the fault.
        let (_, field) = layout.last().copied().unwrap_or((0, Field::Message));
        WireError { at: at + usize::from(least) - 2, field, reason: WireErrorReason::BadText }
    })?;
    let seq = Seq(u16::from_le_bytes([low, high]));
    let control = Control { seq, reliable: word & RELIABLE != 0, urgent: word & URGENT != 0, body, tail };
    Ok((Message::Control(control), rest))
}

fn body(kind: Kind, reply: bool, bytes: &[u8]) -> Option<(Body<'_>, &[u8])> {
    Some(match kind {
        Kind::IDENTITY => {
            let (&[peer, a, b, c, d], rest) = bytes.split_first_chunk()?;
            let (name, tail) = Text::split_terminated(rest)?;
            (Body::Identity { peer: PeerId(peer), address: Ipv4Addr::new(a, b, c, d), name }, tail)
        }
        Kind::CONNECT if reply => {
            let (&assigned, tail) = bytes.split_first()?;
            (Body::ConnectReply { assigned: PeerId(assigned) }, tail)
        }
        Kind::CONNECT => {
            let (&[a, b, c, d], rest) = bytes.split_first_chunk()?;
            let (nonce, rest) = rest.split_first_chunk()?;
            let (password, tail) = Text::split_terminated(rest)?;
            let address = Ipv4Addr::new(a, b, c, d);
            (Body::ConnectRequest { address, nonce: u32::from_le_bytes(*nonce), password }, tail)
        }
        Kind::BOOT => {
            let (&[reason, target], tail) = bytes.split_first_chunk()?;
            (Body::Boot { reason: BootReason(reason.cast_signed()), target: PeerId(target) }, tail)
        }
        _ => {
            let (&[peer, a, b, c, d], tail) = bytes.split_first_chunk()?;
            (Body::Disconnect { peer: PeerId(peer), address: Ipv4Addr::new(a, b, c, d) }, tail)
        }
    })
}

/// Returns the minimum length and the name of each field of a control message, in order.
fn layout(kind: Kind, reply: bool) -> &'static [(u16, Field)] {
    const HEAD: [(u16, Field); 3] = [(1, Field::Type), (2, Field::Size), (2, Field::Sequence)];
    const IDENTITY: &[(u16, Field)] =
        &[HEAD[0], HEAD[1], HEAD[2], (1, Field::Peer), (4, Field::Address), (2, Field::Name)];
    const REPLY: &[(u16, Field)] = &[HEAD[0], HEAD[1], HEAD[2], (1, Field::Assigned), (0, Field::Tail)];
    const REQUEST: &[(u16, Field)] =
        &[HEAD[0], HEAD[1], HEAD[2], (4, Field::Address), (4, Field::Nonce), (2, Field::Password)];
    const BOOT: &[(u16, Field)] =
        &[HEAD[0], HEAD[1], HEAD[2], (1, Field::BootReason), (1, Field::Target), (0, Field::Tail)];
    const DISCONNECT: &[(u16, Field)] =
        &[HEAD[0], HEAD[1], HEAD[2], (1, Field::Peer), (4, Field::Address), (0, Field::Tail)];
    match kind {
        Kind::IDENTITY => IDENTITY,
        Kind::CONNECT if reply => REPLY,
        Kind::CONNECT => REQUEST,
        Kind::BOOT => BOOT,
        _ => DISCONNECT,
    }
}

/// Returns the error for a datagram that ends inside a data message, with the field.
#[cold]
fn truncated_data_error(bytes: &[u8], at: usize, word: u16) -> WireError {
    let sequence = if word & RELIABLE == 0 { 0 } else { 2 };
    let part = if word & FRAGMENT == 0 { 0 } else { 1 };
    let first = part == 1 && bytes.get(usize::from(3 + sequence)) == Some(&0);
    let fields = [
        (1, Field::Type),
        (2, Field::Size),
        (sequence, Field::Sequence),
        (part, Field::Part),
        (u16::from(first), Field::Total),
        (0, Field::Payload),
    ];
    truncated_field_error(bytes, at, &fields)
}

/// Returns the error for a datagram that ends before the message does.
///
/// The cut field is the first that does not fit in its minimum length; if all fit, it is the last.
#[cold]
fn truncated_field_error(bytes: &[u8], at: usize, fields: &[(u16, Field)]) -> WireError {
    let mut end = 0;
    let mut field = Field::Message;
    for (len, name) in fields {
        end += usize::from(*len);
        field = *name;
        if end > bytes.len() {
            break;
        }
    }
    truncated_error(bytes, at, field)
}

#[cold]
fn truncated_error(bytes: &[u8], at: usize, field: Field) -> WireError {
    WireError { at: at + bytes.len(), field, reason: WireErrorReason::Truncated }
}

#[cold]
fn bad_size_error(at: usize, found: u16, least: u16) -> WireError {
    WireError { at: at + 1, field: Field::Size, reason: WireErrorReason::BadSize { found, least } }
}

/// The size of a connect request with an empty password.
const MIN_REQUEST_SIZE: usize = 15;
