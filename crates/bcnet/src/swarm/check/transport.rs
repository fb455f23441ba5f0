//! Rules of the transport.

use std::time::Duration;

use anyhow::{bail, ensure};
use bcnet_transport::wire::{BootReason, Kind};

use super::files;
use super::probe_client::{ABSENCE_WAIT, ANSWER_TIMEOUT, ProbeClient, ReceivedMessage, hex};
use super::raw_payload;
use super::{NOT_ADMITTED, NOT_IN_GAME, Probe, ProbeTarget, ProbeVerdict};

pub(super) const PROBES: &[Probe] = &[
    Probe::quick("T-01", "all datagrams of a join parse to the last byte", framing),
    Probe::quick("T-30", "a connect request gets an ACK in the form for control messages", control_ack),
    Probe::quick(
        "T-34",
        "the connect reply has six bytes: flags C0, sequence number 0, an id from 2 to 126",
        connect_reply,
    ),
    Probe::quick(
        "T-53",
        "a repeated connect request is acknowledged again and assigns no second id",
        repeated_request,
    ),
    Probe::quick("T-52", "an identity comes back to its owner unchanged", identity),
    Probe::quick(
        "T-15",
        "the first request of the file check is reliable, with sequence number 0",
        first_request,
    ),
    Probe::quick("T-31", "each fragment is acknowledged by sequence number and index", fragment_acks),
    Probe::quick("T-68", "fragments are reassembled in any order of arrival", fragments_in_any_order),
    Probe::quick("T-60", "a duplicate message is acknowledged again", ack_of_duplicate),
    Probe::quick("T-60", "a message that arrives once is acknowledged once", single_ack),
    Probe::quick("T-69", "a duplicate message has no second effect", duplicate_has_no_effect),
    Probe::quick(
        "T-69",
        "a message that arrives out of order waits for the messages before it",
        out_of_order_delivery,
    ),
    Probe::quick("T-61", "an unacknowledged message is retransmitted", retransmission),
    Probe::quick("T-24", "sequence numbers continue beyond 255", sequence_beyond_255),
    Probe::quick("T-10", "a message of unknown type does not disturb the connection", unknown_type),
    Probe::lethal(
        "T-03",
        "an empty datagram, a count of 0 and truncated messages do not disturb the connection",
        malformed_datagrams,
    ),
    Probe::quick("T-58", "a datagram with a client's id from another address is ignored", stolen_peer_id),
    Probe::quick("T-57", "a disconnect is acknowledged and relayed", disconnect_notice),
    Probe::quick("T-54", "a wrong password is refused with reason 2 and peer id FF", wrong_password),
    Probe::slow("T-55", "the server sends a keepalive after 5 seconds without other datagrams", keepalive),
    Probe::slow(
        "T-56",
        "a client that is silent for 45 seconds is removed, and the others are informed",
        idle_timeout,
    ),
];

/// Returns an error if no server answers, or if it refuses every client.
pub(super) fn check_reachable(target: &ProbeTarget) -> anyhow::Result<()> {
    let mut client = target.new_client()?;
    let joined = client.connect(&target.password);
    if let Some(reason) = client.refusal().filter(|_| !joined) {
        let hint = if reason == BootReason::WRONG_PASSWORD { "; give the right --password" } else { "" };
        bail!("{}: the server admits no client: {reason}{hint}", target.server);
    }
    client.leave();
    ensure!(has_answer(&mut client), "{}: nobody answers", target.server);
    Ok(())
}

/// Returns whether the server still answers a new client. A refusal is an answer too.
pub(super) fn is_alive(target: &ProbeTarget) -> anyhow::Result<bool> {
    let mut client = target.new_client()?;
    client.connect(&target.password);
    client.leave();
    Ok(has_answer(&mut client))
}

/// Returns whether the server has answered a client, or answers its query.
fn has_answer(client: &mut ProbeClient) -> bool {
    // An unreadable datagram is an answer too.
    let is_answered = |it: &ProbeClient| !it.received.is_empty() || it.parse_error.is_some();
    // A server may limit the rate of its answers.
    is_answered(client)
        || (0..3).any(|_| {
            client.send_raw(b"\\status\\");
            client.receive_until(QUERY_INTERVAL, is_answered)
        })
}

/// Time between two queries to a server that has not answered.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

fn framing(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let mut player = target.new_client()?;
    let joined = player.join(&target.password);
    player.leave();
    player.receive_until(ABSENCE_WAIT, |_| false);
    Ok(match &player.parse_error {
        Some(error) => ProbeVerdict::Wrong(error.clone()),
        None if joined => ProbeVerdict::Right(format!("{} messages", player.received.len())),
        None => ProbeVerdict::Unclear(NOT_IN_GAME.into()),
    })
}

fn control_ack(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let acknowledged = client.receive_until(ANSWER_TIMEOUT, |it| it.has_message(&[0x01, 0, 0, 2]));
    let acks = client.received.iter().find(|received| received.bytes.first() == Some(&0x01));
    let evidence = acks.map_or_else(|| "no ACK came".into(), |ack| hex(&ack.bytes));
    client.leave();
    Ok(ProbeVerdict::right_if(acknowledged, evidence))
}

fn connect_reply(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.leave();
    let reply = client.received.iter().find(|received| received.bytes.first() == Some(&Kind::CONNECT.0));
    let Some(ReceivedMessage { bytes, .. }) = reply else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let good =
        matches!(bytes.as_slice(), [0x03, 0x06, 0xC0, 0, 0, id] if (2..=126).contains(id) && *id != 0x5C);
    Ok(ProbeVerdict::right_if(good, hex(bytes)))
}

fn repeated_request(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.receive_until(ABSENCE_WAIT, |_| false);
    let (id, before) = (client.id, client.received.len());
    let request = client.connect_request(&target.password);
    client.id = 0xFF;
    client.send(&[request]);
    let is_ack = |received: &ReceivedMessage| received.bytes == [0x01, 0, 0, 2];
    let is_repeated = client.receive_until(ANSWER_TIMEOUT, |it| it.received.iter().skip(before).any(is_ack));
    let other = client
        .received
        .iter()
        .skip(before)
        .find(|received| matches!(received.bytes.as_slice(), [0x03, .., other] if *other != id));
    let other = other.map(|received| hex(&received.bytes));
    client.id = id;
    client.leave();
    Ok(match other {
        Some(other) => ProbeVerdict::Wrong(format!("after id {id}: {other}")),
        None => ProbeVerdict::right_if(
            is_repeated,
            if is_repeated { "01 00 00 02, no new id" } else { "no ACK came" },
        ),
    })
}

fn identity(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_identity();
    let body = client.identity_body();
    // The server may also send the name of an earlier client that has not left yet (T-57).
    let id = client.id;
    let is_own = |received: &&ReceivedMessage| {
        received.bytes.first() == Some(&0x00) && received.bytes.get(5) == Some(&id)
    };
    let came =
        client.receive_until(ANSWER_TIMEOUT, |it| it.received.iter().any(|received| is_own(&received)));
    client.leave();
    let received = client.received.iter().find(is_own);
    let evidence = received.map_or_else(|| "no identity came".into(), |received| hex(&received.bytes));
    let same = received.is_some_and(|received| received.bytes.get(5..) == Some(&body));
    Ok(ProbeVerdict::right_if(came && same, evidence))
}

fn first_request(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let came = client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20]));
    client.leave();
    let request = client.received.iter().find(|received| received.bytes.first() == Some(&0x32));
    let evidence = request.map_or_else(|| "none came".into(), |received| hex(&received.bytes));
    Ok(ProbeVerdict::right_if(came && client.has_message(&[0x32, 27, 0x80, 0, 0, 0x20, 0]), evidence))
}

/// Returns a client that answered the first two rounds; the third, which has fragments, is requested.
fn client_before_fragments(target: &ProbeTarget) -> anyhow::Result<Option<ProbeClient>> {
    let Some(mut client) = target.connected_client()? else { return Ok(None) };
    client.send_identity();
    let asked = client.answer_round(0)
        && client.answer_round(1)
        && client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 2]));
    Ok(asked.then_some(client))
}

fn fragment_acks(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = client_before_fragments(target)? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let fragments = client.fragments(&files::answer(2).unwrap_or_default());
    for fragment in fragments {
        client.send(&[fragment]);
    }
    let wanted: Vec<[u8; 5]> = (0..3).map(|index| [0x01, 2, 0, 1, index]).collect();
    let all = client.receive_until(ANSWER_TIMEOUT, |it| wanted.iter().all(|ack| it.has_message(ack)));
    client.leave();
    let acks = client.received.iter().filter(|received| received.bytes.starts_with(&[0x01, 2, 0]));
    let acks: Vec<String> = acks.map(|received| hex(&received.bytes)).collect();
    Ok(ProbeVerdict::right_if(all, if acks.is_empty() { "no ACK came".into() } else { acks.join(", ") }))
}

fn fragments_in_any_order(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = client_before_fragments(target)? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let mut fragments = client.fragments(&files::answer(2).unwrap_or_default());
    fragments.rotate_right(1);
    for fragment in fragments {
        client.send(&[fragment]);
    }
    let continued = client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 3]));
    client.leave();
    Ok(ProbeVerdict::right_if(
        continued,
        if continued { "2, 0, 1: the next round came" } else { "2, 0, 1: no next round" },
    ))
}

fn ack_of_duplicate(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some((mut client, reply)) = client_after_first_round(target)? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    let before = client.received.len();
    client.send(&[reply]);
    let is_ack = |received: &ReceivedMessage| received.bytes == [0x01, 0, 0, 0];
    let is_repeated = client.receive_until(ANSWER_TIMEOUT, |it| it.received.iter().skip(before).any(is_ack));
    client.leave();
    Ok(ProbeVerdict::right_if(
        is_repeated,
        if is_repeated { "01 00 00 00 came again" } else { "no second ACK came" },
    ))
}

fn single_ack(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_identity();
    let ack = [0x01, 1, 0, 2];
    let came = client.receive_until(ANSWER_TIMEOUT, |it| it.has_message(&ack));
    // The stock engine sends a second ACK after two thirds of a second.
    client.receive_until(Duration::from_secs(2), |_| false);
    client.leave();
    let acks = client.received.iter().filter(|received| received.bytes == ack).count();
    Ok(ProbeVerdict::right_if(came && acks == 1, format!("ACKs of one identity: {acks}")))
}

/// Returns a client that answered the first round, with its answer.
fn client_after_first_round(target: &ProbeTarget) -> anyhow::Result<Option<(ProbeClient, Vec<u8>)>> {
    let Some(mut client) = target.connected_client()? else { return Ok(None) };
    client.send_identity();
    if !client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 0])) {
        return Ok(None);
    }
    let reply = client.reliable_message(&files::answer(0).unwrap_or_default());
    client.send(std::slice::from_ref(&reply));
    let continued = client
        .receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 1]) && it.has_message(&[0x01, 0, 0, 0]));
    Ok(continued.then_some((client, reply)))
}

fn duplicate_has_no_effect(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let [line, fence] = [b"swarm once", b"swarm more"];
    let [order, last] = [line, fence]
        .map(|text| one.reliable_message(&raw_payload::chat(one.id, &String::from_utf8_lossy(text))));
    for _ in 0..3 {
        one.send(std::slice::from_ref(&order));
        one.receive_until(ABSENCE_WAIT, |it| it.is_acknowledged(&order));
    }
    one.send(&[last]);
    // Messages are relayed in order: when this one arrives, all earlier copies have arrived.
    let count = |it: &ProbeClient, text: &[u8]| it.payloads().iter().filter(|it| it.ends_with(text)).count();
    let fenced = other.receive_until(ANSWER_TIMEOUT, |it| count(it, fence) > 0);
    let times = count(&other, line);
    Ok(match times {
        0 if !fenced => ProbeVerdict::Unclear("chat is not relayed: see S-40".into()),
        _ => ProbeVerdict::right_if(
            times == 1,
            format!("a chat message was sent three times with one number; copies relayed: {times}"),
        ),
    })
}

fn out_of_order_delivery(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_identity();
    client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 0]));
    let replies = [0, 1].map(|round| client.reliable_message(&files::answer(round).unwrap_or_default()));
    let [first, second] = replies;
    client.send(&[second]);
    let early = client.receive_until(ABSENCE_WAIT, |it| it.has_payload(&[0x20, 1]));
    client.send(&[first]);
    let late = client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 2]));
    client.leave();
    Ok(match (early, late) {
        (true, _) => ProbeVerdict::Wrong("number 1 had an effect before number 0".into()),
        (false, late) => ProbeVerdict::right_if(
            late,
            if late { "1, then 0: both had their effect" } else { "number 1 was lost" },
        ),
    })
}

fn retransmission(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let mut client = target.new_client()?;
    client.sends_acks = false;
    if !client.connect(&target.password) {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    }
    let requests = |it: &ProbeClient| -> Vec<_> {
        it.received
            .iter()
            .filter(|received| received.bytes.starts_with(&[0x32, 27, 0x80, 0, 0]))
            .map(|received| received.at)
            .collect()
    };
    let is_repeated = client.receive_until(Duration::from_secs(12), |it| requests(it).len() > 1);
    let times = requests(&client);
    client.leave();
    Ok(match times.as_slice() {
        [first, second, ..] if is_repeated => {
            ProbeVerdict::Right(format!("after {} ms", second.since(*first).as_millis()))
        }
        _ => ProbeVerdict::Wrong("the message came once in 12 seconds".into()),
    })
}

/// Returns one of 300 numbered messages of a player.
fn numbered_order(slot: u8, number: u32) -> Vec<u8> {
    raw_payload::event(0x08, 0x0101, 0xDA, raw_payload::first_object(slot) + 1 + number, &[])
}

fn sequence_beyond_255(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let mut orders = Vec::new();
    for ten in 0..30 {
        let wanted: Vec<Vec<u8>> = (0..10).map(|n| numbered_order(one.slot, 10 * ten + n)).collect();
        let ten: Vec<Vec<u8>> = wanted.iter().map(|payload| one.reliable_message(payload)).collect();
        one.send(&ten);
        one.receive_until(ANSWER_TIMEOUT, |it| ten.iter().all(|order| it.is_acknowledged(order)));
        other.receive_until(Duration::from_millis(30), |_| false);
        if let Some(order) = ten.iter().find(|order| !one.is_acknowledged(order)) {
            return Ok(ProbeVerdict::Wrong(format!("number {} is not acknowledged", sequence_number(order))));
        }
        orders.extend(ten.into_iter().zip(wanted));
    }
    let is_order = |payload: &&&[u8]| payload.first() == Some(&0x08);
    other.receive_until(ANSWER_TIMEOUT, |it| it.payloads().iter().filter(is_order).count() >= orders.len());
    let received: Vec<Vec<u8>> = other.payloads().iter().filter(is_order).map(|it| it.to_vec()).collect();
    let first_wrong =
        orders.iter().enumerate().find(|(place, (_, wanted))| received.get(*place) != Some(wanted));
    let numbers = orders
        .first()
        .zip(orders.last())
        .map_or(0..=0, |(first, last)| sequence_number(&first.0)..=sequence_number(&last.0));
    Ok(match first_wrong {
        Some((_, (order, _))) => ProbeVerdict::Wrong(format!(
            "another player received {} of {} messages; number {} is missing or out of order",
            received.len(),
            orders.len(),
            sequence_number(order)
        )),
        None => ProbeVerdict::right_if(
            received.len() == orders.len(),
            format!("{} messages received by another player, numbers {numbers:?}", received.len()),
        ),
    })
}

/// Returns the sequence number of a reliable message.
fn sequence_number(order: &[u8]) -> u16 {
    order.get(3..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u16::from_le_bytes(*number))
}

/// Returns whether a client can continue its join.
fn join_continues(mut client: ProbeClient) -> bool {
    client.send_identity();
    let served =
        client.answer_round(0) && client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, 1]));
    client.leave();
    served
}

fn unknown_type(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    for kind in UNKNOWN_TYPES {
        let Some(client) = target.connected_client()? else {
            return Ok(ProbeVerdict::Unclear(format!("{NOT_ADMITTED}, to try type {kind:02X}")));
        };
        client.send(&[vec![kind, 5, 0x80, 0, 0]]);
        if !join_continues(client) {
            return Ok(ProbeVerdict::Wrong(format!("after type {kind:02X} the join stopped")));
        }
    }
    Ok(ProbeVerdict::Right(format!("the join continued after each of the types {}", hex(&UNKNOWN_TYPES))))
}

/// Types without a meaning.
const UNKNOWN_TYPES: [u8; 3] = [0x06, 0x33, 0xFF];

fn malformed_datagrams(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_raw(&[]);
    client.send_raw(&[client.id]);
    client.send(&[]);
    client.send(&[vec![0x32, 0xFF, 0x9F, 0, 0, 1]]);
    client.send(&[vec![0x32, 0x01, 0x80]]);
    client.send(&[vec![0x00, 0, 0, 1, 0]]);
    let serves = join_continues(client);
    Ok(ProbeVerdict::right_if(serves, if serves { "the join continued" } else { "the join stopped" }))
}

fn stolen_peer_id(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let mut impostor = target.new_client()?;
    impostor.id = one.id;
    // Both have the same number, so only one can count.
    let honest = one.reliable_message(&raw_payload::chat(one.id, "honest"));
    let text = honest.len().saturating_sub("honest".len());
    impostor.send(&[[honest.get(..text).unwrap_or_default(), b"stolen"].concat()]);
    let has_text =
        |it: &ProbeClient, text: &[u8]| it.received.iter().any(|received| received.bytes.ends_with(text));
    other.receive_until(ABSENCE_WAIT, |it| has_text(it, b"stolen"));
    one.send(&[honest]);
    other.receive_until(ANSWER_TIMEOUT, |it| has_text(it, b"honest") || has_text(it, b"stolen"));
    one.leave();
    other.leave();
    Ok(match (has_text(&other, b"stolen"), has_text(&other, b"honest")) {
        (true, _) => ProbeVerdict::Wrong("chat with a stolen id was relayed".into()),
        (false, true) => ProbeVerdict::Right("only the chat of the id's owner was relayed".into()),
        (false, false) => ProbeVerdict::Wrong("the chat of the id's owner was not relayed".into()),
    })
}

fn disconnect_notice(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let leaver_id = one.id;
    one.leave();
    let acknowledged = one.receive_until(ANSWER_TIMEOUT, |it| it.has_message(&[0x01, 2, 0, 2]));
    let is_disconnect_notice = |received: &ReceivedMessage| {
        received.bytes.first() == Some(&Kind::DISCONNECT.0) && received.bytes.get(5) == Some(&leaver_id)
    };
    let is_reported = other.receive_until(ANSWER_TIMEOUT, |it| it.received.iter().any(is_disconnect_notice));
    other.leave();
    Ok(ProbeVerdict::right_if(
        acknowledged && is_reported,
        format!("acknowledged: {acknowledged}, relayed: {is_reported}"),
    ))
}

fn wrong_password(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    if target.password.is_empty() {
        return Ok(ProbeVerdict::Unclear("needs the server's --password".into()));
    }
    let mut client = target.new_client()?;
    let request = client.connect_request(&format!("not {}", target.password));
    client.send(&[request]);
    client.receive_until(ANSWER_TIMEOUT, |it| {
        it.received.iter().any(|received| received.bytes.first() == Some(&Kind::BOOT.0))
    });
    let boot = client.received.iter().find(|received| received.bytes.first() == Some(&Kind::BOOT.0));
    let evidence = boot.map_or_else(|| "no boot came".into(), |received| hex(&received.bytes));
    Ok(ProbeVerdict::right_if(
        boot.is_some_and(|received| received.bytes.get(5..) == Some(&[2, 0xFF])),
        evidence,
    ))
}

fn keepalive(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut player]) = target.players()? else { return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into())) };
    let before = player.clock.now();
    let alive = player.receive_until(Duration::from_secs(9), |it| it.has_message(&[0x02]));
    let after = player.clock.now().since(before);
    player.leave();
    Ok(ProbeVerdict::right_if(
        alive,
        if alive { format!("after {} ms", after.as_millis()) } else { "none in 9 seconds".into() },
    ))
}

fn idle_timeout(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let is_boot = |received: &ReceivedMessage| {
        received.bytes.first() == Some(&Kind::BOOT.0) && received.bytes.get(5..) == Some(&[1, one.id])
    };
    let start = other.clock.now();
    let is_reported = (0..26).any(|_| {
        // The receiving client must not be silent itself.
        other.send(&[vec![0x02]]);
        other.receive_until(Duration::from_secs(2), |it| it.received.iter().any(is_boot))
    });
    let seconds = other.clock.now().since(start).as_secs();
    other.leave();
    Ok(ProbeVerdict::right_if(
        is_reported && (40..50).contains(&seconds),
        format!("others informed: {is_reported}, after {seconds} s"),
    ))
}
