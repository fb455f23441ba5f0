//! Rules of the transport.

use std::time::Duration;

use anyhow::{bail, ensure};
use bcnet_transport::wire::{BootReason, Kind};

use super::files;
use super::raw;
use super::visitor::{Heard, MOMENT, SOON, Visitor, hex};
use super::{NOT_IN_GAME, NOT_LET_IN, Outcome, Probe, Target};

pub(super) const PROBES: &[Probe] = &[
    Probe::quick("T-01", "datagrams of a whole join can be read to the last byte", framing),
    Probe::quick("T-30", "a request to join is acknowledged in the form for control messages", control_ack),
    Probe::quick("T-34", "the reply is six bytes, flags C0, number 0, and an id from 2 to 126", reply),
    Probe::quick("T-53", "a repeated request is acknowledged again and gives no second id", repeated_request),
    Probe::quick("T-52", "an identity comes back to its owner unchanged", identity),
    Probe::quick("T-15", "the first request of the file check is reliable, with number 0", first_request),
    Probe::quick("T-31", "each part is acknowledged by number and index", part_acks),
    Probe::quick("T-68", "parts are put together in whatever order they come", parts_in_any_order),
    Probe::quick("T-60", "a message that comes again is acknowledged again", repeated_ack),
    Probe::quick("T-60", "a message that comes once is acknowledged once", single_ack),
    Probe::quick("T-69", "a message that comes again has no second effect", once),
    Probe::quick("T-69", "a message that comes too early waits for those before it", in_order),
    Probe::quick("T-61", "what is not acknowledged is sent again", sent_again),
    Probe::quick("T-24", "numbers go on beyond 255", numbers),
    Probe::quick("T-10", "an unknown type does no harm", unknown_type),
    Probe::quick("T-03", "an empty datagram, a count of 0 and cut messages do no harm", malformed),
    Probe::quick("T-58", "a client's id is worth nothing from another address", foreign_id),
    Probe::quick("T-57", "a goodbye is acknowledged and passed on", goodbye),
    Probe::quick("T-54", "a wrong password is refused with reason 2 for nobody", wrong_password),
    Probe::slow("T-55", "after 5 seconds of quiet there is a sign of life", keepalive),
    Probe::slow("T-56", "a client that is silent for 45 seconds is gone, and everyone is told", silence),
];

/// Returns an error if nobody is there, or does not want anybody.
pub(super) fn greet(target: &Target) -> anyhow::Result<()> {
    let mut guest = target.stranger()?;
    let joined = guest.connect(&target.password);
    if let Some(reason) = guest.refusal().filter(|_| !joined) {
        let hint = if reason == BootReason::WRONG_PASSWORD { "; give the right --password" } else { "" };
        bail!("{}: it lets nobody in: {reason}{hint}", target.server);
    }
    guest.leave();
    // What cannot be read is an answer, too.
    if guest.heard.is_empty() && guest.malformed.is_none() {
        guest.send_raw(b"\\status\\");
        guest.listen(SOON, |it| !it.heard.is_empty());
        ensure!(!guest.heard.is_empty(), "{}: nobody answers", target.server);
    }
    Ok(())
}

fn framing(target: &Target) -> anyhow::Result<Outcome> {
    let mut player = target.stranger()?;
    let joined = player.join(&target.password);
    player.leave();
    player.listen(MOMENT, |_| false);
    Ok(match &player.malformed {
        Some(error) => Outcome::Wrong(error.clone()),
        None if joined => Outcome::Right(format!("{} messages", player.heard.len())),
        None => Outcome::Unclear(NOT_IN_GAME.into()),
    })
}

fn control_ack(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let acknowledged = guest.listen(SOON, |it| it.has(&[0x01, 0, 0, 2]));
    let acks = guest.heard.iter().find(|heard| heard.bytes.first() == Some(&0x01));
    let evidence = acks.map_or_else(|| "no ACK came".into(), |ack| hex(&ack.bytes));
    guest.leave();
    Ok(Outcome::when(acknowledged, evidence))
}

fn reply(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.leave();
    let reply = guest.heard.iter().find(|heard| heard.bytes.first() == Some(&Kind::CONNECT.0));
    let Some(Heard { bytes, .. }) = reply else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let good =
        matches!(bytes.as_slice(), [0x03, 0x06, 0xC0, 0, 0, id] if (2..=126).contains(id) && *id != 0x5C);
    Ok(Outcome::when(good, hex(bytes)))
}

fn repeated_request(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.listen(MOMENT, |_| false);
    let (id, before) = (guest.id, guest.heard.len());
    let request = guest.connect_request(&target.password);
    guest.id = 0xFF;
    guest.say(&[request]);
    let is_ack = |heard: &Heard| heard.bytes == [0x01, 0, 0, 2];
    let again = guest.listen(SOON, |it| it.heard.iter().skip(before).any(is_ack));
    let other = guest
        .heard
        .iter()
        .skip(before)
        .find(|heard| matches!(heard.bytes.as_slice(), [0x03, .., other] if *other != id));
    let other = other.map(|heard| hex(&heard.bytes));
    guest.id = id;
    guest.leave();
    Ok(match other {
        Some(other) => Outcome::Wrong(format!("after id {id}: {other}")),
        None => Outcome::when(again, if again { "01 00 00 02, no new id" } else { "no ACK came" }),
    })
}

fn identity(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.identify();
    let body = guest.identity();
    let came = guest.listen(SOON, |it| it.heard.iter().any(|heard| heard.bytes.first() == Some(&0x00)));
    guest.leave();
    let heard = guest.heard.iter().find(|heard| heard.bytes.first() == Some(&0x00));
    let evidence = heard.map_or_else(|| "no identity came".into(), |heard| hex(&heard.bytes));
    let same = heard.is_some_and(|heard| heard.bytes.get(5..) == Some(&body));
    Ok(Outcome::when(came && same, evidence))
}

fn first_request(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let came = guest.listen(SOON, |it| it.has_payload(&[0x20]));
    guest.leave();
    let request = guest.heard.iter().find(|heard| heard.bytes.first() == Some(&0x32));
    let evidence = request.map_or_else(|| "none came".into(), |heard| hex(&heard.bytes));
    Ok(Outcome::when(came && guest.has(&[0x32, 27, 0x80, 0, 0, 0x20, 0]), evidence))
}

/// Returns a guest that has answered the first two rounds and is asked for the third, which has parts.
fn before_parts(target: &Target) -> anyhow::Result<Option<Visitor>> {
    let Some(mut guest) = target.guest()? else { return Ok(None) };
    guest.identify();
    let asked = guest.answer(0) && guest.answer(1) && guest.listen(SOON, |it| it.has_payload(&[0x20, 2]));
    Ok(asked.then_some(guest))
}

fn part_acks(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = before_parts(target)? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let parts = guest.parts(&files::answer(2).unwrap_or_default());
    for part in parts {
        guest.say(&[part]);
    }
    let wanted: Vec<[u8; 5]> = (0..3).map(|index| [0x01, 2, 0, 1, index]).collect();
    let all = guest.listen(SOON, |it| wanted.iter().all(|ack| it.has(ack)));
    guest.leave();
    let acks = guest.heard.iter().filter(|heard| heard.bytes.starts_with(&[0x01, 2, 0]));
    let acks: Vec<String> = acks.map(|heard| hex(&heard.bytes)).collect();
    Ok(Outcome::when(all, if acks.is_empty() { "no ACK came".into() } else { acks.join(", ") }))
}

fn parts_in_any_order(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = before_parts(target)? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let mut parts = guest.parts(&files::answer(2).unwrap_or_default());
    parts.rotate_right(1);
    for part in parts {
        guest.say(&[part]);
    }
    let went_on = guest.listen(SOON, |it| it.has_payload(&[0x20, 3]));
    guest.leave();
    Ok(Outcome::when(
        went_on,
        if went_on { "2, 0, 1: the next round came" } else { "2, 0, 1: no next round" },
    ))
}

fn repeated_ack(target: &Target) -> anyhow::Result<Outcome> {
    let Some((mut guest, reply)) = answered(target)? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    let before = guest.heard.len();
    guest.say(&[reply]);
    let is_ack = |heard: &Heard| heard.bytes == [0x01, 0, 0, 0];
    let again = guest.listen(SOON, |it| it.heard.iter().skip(before).any(is_ack));
    guest.leave();
    Ok(Outcome::when(again, if again { "01 00 00 00 came again" } else { "no second ACK came" }))
}

fn single_ack(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.identify();
    let ack = [0x01, 1, 0, 2];
    let came = guest.listen(SOON, |it| it.has(&ack));
    // The original says it again after two thirds of a second.
    guest.listen(Duration::from_secs(2), |_| false);
    guest.leave();
    let acks = guest.heard.iter().filter(|heard| heard.bytes == ack).count();
    Ok(Outcome::when(came && acks == 1, format!("ACKs of one identity: {acks}")))
}

/// Returns a guest that has answered the first round, with its answer.
fn answered(target: &Target) -> anyhow::Result<Option<(Visitor, Vec<u8>)>> {
    let Some(mut guest) = target.guest()? else { return Ok(None) };
    guest.identify();
    if !guest.listen(SOON, |it| it.has_payload(&[0x20, 0])) {
        return Ok(None);
    }
    let reply = guest.reliable(&files::answer(0).unwrap_or_default());
    guest.say(std::slice::from_ref(&reply));
    let went_on = guest.listen(SOON, |it| it.has_payload(&[0x20, 1]) && it.has(&[0x01, 0, 0, 0]));
    Ok(went_on.then_some((guest, reply)))
}

fn once(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let [line, fence] = [b"swarm once", b"swarm more"];
    let [order, last] =
        [line, fence].map(|text| one.reliable(&raw::chat(one.id, &String::from_utf8_lossy(text))));
    for _ in 0..3 {
        one.say(std::slice::from_ref(&order));
        one.listen(MOMENT, |it| it.is_acknowledged(&order));
    }
    one.say(&[last]);
    // Messages are passed on in order: when this one comes, nothing of what was said before it is still to come.
    let count = |it: &Visitor, text: &[u8]| it.payloads().iter().filter(|it| it.ends_with(text)).count();
    let fenced = other.listen(SOON, |it| count(it, fence) > 0);
    let times = count(&other, line);
    Ok(match times {
        0 if !fenced => Outcome::Unclear("chat is not passed on: see S-40".into()),
        _ => Outcome::when(times == 1, format!("a line of chat, sent three times, was heard {times} times")),
    })
}

fn in_order(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.identify();
    guest.listen(SOON, |it| it.has_payload(&[0x20, 0]));
    let replies = [0, 1].map(|round| guest.reliable(&files::answer(round).unwrap_or_default()));
    let [first, second] = replies;
    guest.say(&[second]);
    let early = guest.listen(MOMENT, |it| it.has_payload(&[0x20, 1]));
    guest.say(&[first]);
    let late = guest.listen(SOON, |it| it.has_payload(&[0x20, 2]));
    guest.leave();
    Ok(match (early, late) {
        (true, _) => Outcome::Wrong("number 1 had an effect before number 0".into()),
        (false, late) => Outcome::when(
            late,
            if late { "1, then 0: both had their effect" } else { "number 1 was forgotten" },
        ),
    })
}

fn sent_again(target: &Target) -> anyhow::Result<Outcome> {
    let mut guest = target.stranger()?;
    guest.acknowledges = false;
    if !guest.connect(&target.password) {
        return Ok(Outcome::Unclear(NOT_LET_IN.into()));
    }
    let requests = |it: &Visitor| -> Vec<_> {
        it.heard
            .iter()
            .filter(|heard| heard.bytes.starts_with(&[0x32, 27, 0x80, 0, 0]))
            .map(|heard| heard.at)
            .collect()
    };
    let again = guest.listen(Duration::from_secs(12), |it| requests(it).len() > 1);
    let times = requests(&guest);
    guest.leave();
    Ok(match times.as_slice() {
        [first, second, ..] if again => {
            Outcome::Right(format!("after {} ms", second.since(*first).as_millis()))
        }
        _ => Outcome::Wrong("it came once in 12 seconds".into()),
    })
}

/// Returns what one player says 300 times, with a number.
fn numbered(slot: u8, number: u32) -> Vec<u8> {
    raw::event(0x08, 0x0101, 0xDA, raw::first_object(slot) + 1 + number, &[])
}

fn numbers(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let mut orders = Vec::new();
    for ten in 0..30 {
        let wanted: Vec<Vec<u8>> = (0..10).map(|n| numbered(one.slot, 10 * ten + n)).collect();
        let ten: Vec<Vec<u8>> = wanted.iter().map(|payload| one.reliable(payload)).collect();
        one.say(&ten);
        one.listen(SOON, |it| ten.iter().all(|order| it.is_acknowledged(order)));
        other.listen(Duration::from_millis(30), |_| false);
        if let Some(order) = ten.iter().find(|order| !one.is_acknowledged(order)) {
            return Ok(Outcome::Wrong(format!("number {} is not acknowledged", number_of(order))));
        }
        orders.extend(ten.into_iter().zip(wanted));
    }
    let is_order = |payload: &&&[u8]| payload.first() == Some(&0x08);
    other.listen(SOON, |it| it.payloads().iter().filter(is_order).count() >= orders.len());
    let heard: Vec<Vec<u8>> = other.payloads().iter().filter(is_order).map(|it| it.to_vec()).collect();
    let first_wrong =
        orders.iter().enumerate().find(|(place, (_, wanted))| heard.get(*place) != Some(wanted));
    let numbers = orders
        .first()
        .zip(orders.last())
        .map_or(0..=0, |(first, last)| number_of(&first.0)..=number_of(&last.0));
    Ok(match first_wrong {
        Some((_, (order, _))) => Outcome::Wrong(format!(
            "another player has heard {} of {} orders, and not number {} in its place",
            heard.len(),
            orders.len(),
            number_of(order)
        )),
        None => Outcome::when(
            heard.len() == orders.len(),
            format!("{} orders heard by another player, numbers {numbers:?}", heard.len()),
        ),
    })
}

/// Returns the number that a reliable message has.
fn number_of(order: &[u8]) -> u16 {
    order.get(3..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u16::from_le_bytes(*number))
}

/// Returns whether a guest still gets on with its join.
fn still_serves(mut guest: Visitor) -> bool {
    guest.identify();
    let served = guest.answer(0) && guest.listen(SOON, |it| it.has_payload(&[0x20, 1]));
    guest.leave();
    served
}

fn unknown_type(target: &Target) -> anyhow::Result<Outcome> {
    for kind in UNKNOWN {
        let Some(guest) = target.guest()? else {
            return Ok(Outcome::Unclear(format!("{NOT_LET_IN}, to try type {kind:02X}")));
        };
        guest.say(&[vec![kind, 5, 0x80, 0, 0]]);
        if !still_serves(guest) {
            return Ok(Outcome::Wrong(format!("after type {kind:02X} the join stopped")));
        }
    }
    Ok(Outcome::Right(format!("after each of {} the join went on", hex(&UNKNOWN))))
}

/// Types that mean nothing.
const UNKNOWN: [u8; 3] = [0x06, 0x33, 0xFF];

fn malformed(target: &Target) -> anyhow::Result<Outcome> {
    let Some(guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.send_raw(&[]);
    guest.send_raw(&[guest.id]);
    guest.say(&[]);
    guest.say(&[vec![0x32, 0xFF, 0x9F, 0, 0, 1]]);
    guest.say(&[vec![0x32, 0x01, 0x80]]);
    guest.say(&[vec![0x00, 0, 0, 1, 0]]);
    let serves = still_serves(guest);
    Ok(Outcome::when(serves, if serves { "the join went on" } else { "the join stopped" }))
}

fn foreign_id(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let mut thief = target.stranger()?;
    thief.id = one.id;
    // Both have the same number, so only one of them can count.
    let honest = one.reliable(&raw::chat(one.id, "honest"));
    let text = honest.len().saturating_sub("honest".len());
    thief.say(&[[honest.get(..text).unwrap_or_default(), b"stolen"].concat()]);
    let heard = |it: &Visitor, text: &[u8]| it.heard.iter().any(|heard| heard.bytes.ends_with(text));
    other.listen(MOMENT, |it| heard(it, b"stolen"));
    one.say(&[honest]);
    other.listen(SOON, |it| heard(it, b"honest") || heard(it, b"stolen"));
    one.leave();
    other.leave();
    Ok(match (heard(&other, b"stolen"), heard(&other, b"honest")) {
        (true, _) => Outcome::Wrong("chat under a stolen id was passed on".into()),
        (false, true) => Outcome::Right("only its owner was heard".into()),
        (false, false) => Outcome::Wrong("its owner was not heard any more".into()),
    })
}

fn goodbye(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let leaver = one.id;
    one.leave();
    let acknowledged = one.listen(SOON, |it| it.has(&[0x01, 2, 0, 2]));
    let is_goodbye = |heard: &Heard| {
        heard.bytes.first() == Some(&Kind::DISCONNECT.0) && heard.bytes.get(5) == Some(&leaver)
    };
    let told = other.listen(SOON, |it| it.heard.iter().any(is_goodbye));
    other.leave();
    Ok(Outcome::when(acknowledged && told, format!("acknowledged: {acknowledged}, passed on: {told}")))
}

fn wrong_password(target: &Target) -> anyhow::Result<Outcome> {
    if target.password.is_empty() {
        return Ok(Outcome::Unclear("tell the server's --password to try this".into()));
    }
    let mut stranger = target.stranger()?;
    let request = stranger.connect_request(&format!("not {}", target.password));
    stranger.say(&[request]);
    stranger.listen(SOON, |it| it.heard.iter().any(|heard| heard.bytes.first() == Some(&Kind::BOOT.0)));
    let boot = stranger.heard.iter().find(|heard| heard.bytes.first() == Some(&Kind::BOOT.0));
    let evidence = boot.map_or_else(|| "no boot came".into(), |heard| hex(&heard.bytes));
    Ok(Outcome::when(boot.is_some_and(|heard| heard.bytes.get(5..) == Some(&[2, 0xFF])), evidence))
}

fn keepalive(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut player]) = target.players()? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let before = player.clock.now();
    let alive = player.listen(Duration::from_secs(9), |it| it.has(&[0x02]));
    let after = player.clock.now().since(before);
    player.leave();
    Ok(Outcome::when(
        alive,
        if alive { format!("after {} ms", after.as_millis()) } else { "none in 9 seconds".into() },
    ))
}

fn silence(target: &Target) -> anyhow::Result<Outcome> {
    let Some([one, mut other]) = target.players()? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let is_boot = |heard: &Heard| {
        heard.bytes.first() == Some(&Kind::BOOT.0) && heard.bytes.get(5..) == Some(&[1, one.id])
    };
    let start = other.clock.now();
    let told = (0..26).any(|_| {
        // Whoever is to be told must not be silent itself.
        other.say(&[vec![0x02]]);
        other.listen(Duration::from_secs(2), |it| it.heard.iter().any(is_boot))
    });
    let seconds = other.clock.now().since(start).as_secs();
    other.leave();
    Ok(Outcome::when(told && (40..50).contains(&seconds), format!("told: {told}, after {seconds} s")))
}
