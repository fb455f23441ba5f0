//! Rules of a server above the transport.

use bcnet_transport::wire::Kind;

use super::probe_client::{ANSWER_TIMEOUT, FILE_CHECK_ROUNDS, ProbeClient, ReceivedMessage, hex};
use super::raw_payload;
use super::{NOT_ADMITTED, NOT_IN_GAME, Probe, ProbeTarget, ProbeVerdict};

pub(super) const PROBES: &[Probe] = &[
    Probe::quick("S-06", "the status has the game's keys in their order, and ends in a query id", status),
    Probe::quick(
        "S-05",
        "a query with extra words, as query programs append them, is answered",
        appended_words,
    ),
    Probe::quick("S-08", "a list server's challenge is answered", secure),
    Probe::quick(
        "S-20",
        "the five rounds of the file check come one at a time, in their order",
        file_check_rounds,
    ),
    Probe::quick("S-25", "messages 28, 00 and 01 come in one datagram after the file check", game_start),
    Probe::quick("S-31", "message 35 comes before the join event of the newcomer", join_order),
    Probe::quick(
        "S-03",
        "each player receives the other's name before the other's join event",
        names_before_events,
    ),
    Probe::quick(
        "S-33",
        "a reliable message is relayed unchanged, equal ones too, but not to its sender",
        relay,
    ),
    Probe::quick("S-34", "target changes and collisions are not relayed", not_relayed),
    Probe::quick("S-32", "an event about another player's object is not relayed", ownership),
    Probe::quick("S-37", "state updates are relayed unreliably and without their hash", state_relay),
    Probe::quick("S-40", "chat is relayed to everyone, its sender too", chat),
    Probe::quick(
        "S-42",
        "relayed chat has the true id of its sender, even if the sender forged it",
        chat_sender_id,
    ),
    Probe::quick("S-30", "a player who joins later receives the existing ships", existing_ships),
    Probe::quick("S-35", "everyone receives the explosion of a ship that destroys itself", self_destruct),
    Probe::quick(
        "S-50",
        "the other players receive a notice with the id of the player who left",
        leave_notice,
    ),
];

/// Returns the answer to a query.
fn query_text(target: &ProbeTarget, question: &[u8]) -> anyhow::Result<Option<String>> {
    let mut client = target.new_client()?;
    client.send_raw(question);
    client.receive_until(ANSWER_TIMEOUT, |it| !it.received.is_empty());
    let text = |received: &ReceivedMessage| received.bytes.iter().map(|byte| char::from(*byte)).collect();
    Ok(client.received.first().map(text))
}

fn status(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(text) = query_text(target, b"\\status\\")? else {
        return Ok(ProbeVerdict::Wrong("no answer".into()));
    };
    let keys: Vec<&str> =
        text.split('\\').skip(1).step_by(2).filter(|key| !key.starts_with("player_")).collect();
    let good = keys == STATUS_KEYS && !text.ends_with('\\');
    Ok(ProbeVerdict::right_if(good, keys.join(" ")))
}

const STATUS_KEYS: [&str; 15] = [
    "gamename",
    "gamever",
    "location",
    "hostname",
    "missionscript",
    "mapname",
    "numplayers",
    "maxplayers",
    "gamemode",
    "timelimit",
    "fraglimit",
    "system",
    "password",
    "final",
    "queryid",
];

fn appended_words(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(text) = query_text(target, b"\\status\\xserverquery")? else {
        return Ok(ProbeVerdict::Wrong("no answer".into()));
    };
    Ok(ProbeVerdict::right_if(
        text.starts_with("\\gamename\\bcommander\\"),
        text.chars().take(60).collect::<String>(),
    ))
}

fn secure(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(text) = query_text(target, b"\\secure\\LRPOPQ")? else {
        return Ok(ProbeVerdict::Wrong("no answer".into()));
    };
    Ok(ProbeVerdict::right_if(
        text.contains("\\validate\\hMwdTNWS"),
        text.chars().take(60).collect::<String>(),
    ))
}

fn file_check_rounds(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_identity();
    let mut order = Vec::new();
    for round in FILE_CHECK_ROUNDS {
        client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, round]));
        let asked = client.payloads().into_iter().filter(|payload| payload.first() == Some(&0x20));
        order = asked.map(|request| request.get(1).copied().unwrap_or(0)).collect();
        let so_far = FILE_CHECK_ROUNDS.iter().take_while(|it| **it != round).count() + 1;
        if order.len() != so_far || !client.answer_round(round) {
            break;
        }
    }
    client.leave();
    Ok(ProbeVerdict::right_if(order == FILE_CHECK_ROUNDS, format!("asked {}", hex(&order))))
}

fn game_start(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some(mut client) = target.connected_client()? else {
        return Ok(ProbeVerdict::Unclear(NOT_ADMITTED.into()));
    };
    client.send_identity();
    let done = FILE_CHECK_ROUNDS.iter().all(|round| client.answer_round(*round));
    let came = done && client.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x01]));
    client.leave();
    if !came {
        return Ok(ProbeVerdict::Wrong("no 01 after the last round".into()));
    }
    let of = |opcode: u8| {
        client.received.iter().find(|received| received.payload().and_then(|it| it.first()) == Some(&opcode))
    };
    let places = [0x28, 0x00, 0x01].map(|opcode| of(opcode).map(|received| received.datagram));
    let evidence = of(0x00).and_then(ReceivedMessage::payload).map_or_else(|| "no settings".into(), hex);
    Ok(ProbeVerdict::right_if(places.iter().all(|place| place.is_some() && *place == places[0]), evidence))
}

fn join_order(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut player]) = target.players()? else { return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into())) };
    player.leave();
    let opcodes: Vec<u8> = player.payloads().iter().filter_map(|payload| payload.first().copied()).collect();
    let place = |wanted| opcodes.iter().position(|opcode| *opcode == wanted);
    let good = place(0x35).zip(place(0x17)).is_some_and(|(mission, event)| mission < event);
    Ok(ProbeVerdict::right_if(good, format!("opcodes {}", hex(&opcodes))))
}

fn names_before_events(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    one.receive_until(ANSWER_TIMEOUT, |it| name_and_join_positions(it, other.id).1.is_some());
    let both = [name_and_join_positions(&one, other.id), name_and_join_positions(&other, one.id)];
    one.leave();
    other.leave();
    let good = both.iter().all(|(name, event)| name.zip(*event).is_some_and(|(name, event)| name < event));
    Ok(ProbeVerdict::right_if(good, format!("messages (name, join event): {both:?}")))
}

/// Returns the positions at which a client received the name and the join event of a peer.
fn name_and_join_positions(client: &ProbeClient, peer: u8) -> (Option<usize>, Option<usize>) {
    let is_name = |received: &ReceivedMessage| {
        received.bytes.first() == Some(&0x00) && received.bytes.get(5) == Some(&peer)
    };
    let is_event = |received: &ReceivedMessage| {
        received.payload().is_some_and(|event| event.first() == Some(&0x17) && event.last() == Some(&peer))
    };
    (client.received.iter().position(is_name), client.received.iter().position(is_event))
}

/// Sends messages in a game of two, and counts the copies of `copy` that each receives.
fn run_exchange(
    target: &ProbeTarget,
    payloads: fn(&ProbeClient, &ProbeClient) -> Vec<Vec<u8>>,
) -> anyhow::Result<Option<TwoPlayerExchange>> {
    let Some([mut one, mut other]) = target.players()? else { return Ok(None) };
    let sent = payloads(&one, &other);
    let messages: Vec<Vec<u8>> = sent.iter().map(|payload| one.reliable_message(payload)).collect();
    let end_marker = one.reliable_message(&raw_payload::chat(one.id, END_MARKER));
    one.send(&[messages, vec![end_marker]].concat());
    // Messages are relayed in order: when this one arrives, all earlier copies have arrived.
    let has_end_marker =
        |it: &ProbeClient| it.received.iter().any(|received| received.bytes.ends_with(END_MARKER.as_bytes()));
    other.receive_until(ANSWER_TIMEOUT, has_end_marker);
    one.receive_until(ANSWER_TIMEOUT, has_end_marker);
    one.leave();
    other.leave();
    Ok(Some(TwoPlayerExchange { sent, sender: one, receiver: other }))
}

const END_MARKER: &str = "swarm fence";

struct TwoPlayerExchange {
    sent: Vec<Vec<u8>>,
    sender: ProbeClient,
    receiver: ProbeClient,
}

impl TwoPlayerExchange {
    /// Returns the received messages with the opcode of the first sent message.
    fn received_by(&self, client: &ProbeClient) -> Vec<Vec<u8>> {
        let opcode = self.sent.first().and_then(|payload| payload.first());
        let alike = client.payloads().into_iter().filter(|payload| payload.first() == opcode);
        alike.map(<[u8]>::to_vec).collect()
    }
}

fn relay(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |one: &ProbeClient, _: &ProbeClient| {
        let fire = raw_payload::event(
            0x07,
            0x8128,
            0xD8,
            raw_payload::first_object(one.slot) + 7,
            &[1, 2, 3, 4, 5, 6, 7, 8],
        );
        vec![fire.clone(), fire]
    };
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let (others, own) = (exchange.received_by(&exchange.receiver), exchange.received_by(&exchange.sender));
    let evidence = format!(
        "sent twice; copies received: {} by another player, {} by the sender",
        others.len(),
        own.len()
    );
    Ok(ProbeVerdict::right_if(others == exchange.sent && own.is_empty(), evidence))
}

fn not_relayed(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |one: &ProbeClient, _: &ProbeClient| {
        let object = raw_payload::first_object(one.slot) + 7;
        vec![
            raw_payload::event(0x0D, 0x010C, 0x58, object, &[0; 4]),
            raw_payload::event(0x15, 0x8124, 0x50, object, &[0; 9]),
        ]
    };
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let received: Vec<u8> =
        [0x0D, 0x15].into_iter().filter(|opcode| exchange.receiver.has_payload(&[*opcode])).collect();
    Ok(ProbeVerdict::right_if(
        received.is_empty(),
        if received.is_empty() { "no copy was received".into() } else { hex(&received) },
    ))
}

fn ownership(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |_: &ProbeClient, other: &ProbeClient| {
        vec![raw_payload::event(0x08, 0x0101, 0xDA, raw_payload::first_object(other.slot) + 7, &[])]
    };
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let received = exchange.received_by(&exchange.receiver).len();
    Ok(ProbeVerdict::right_if(received == 0, format!("copies received: {received}")))
}

fn state_relay(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let ship = raw_payload::first_object(one.slot);
    let with_hash =
        (0..).map(|number| raw_payload::state(ship, number)).find(|state| state.get(9) == Some(&0x9D));
    let state = with_hash.unwrap_or_default();
    let [low, high] = ((3 + state.len()) as u16).to_le_bytes();
    one.send(&[[&[0x32, low, high], state.as_slice()].concat()]);
    other.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x1C]));
    one.leave();
    other.leave();
    let copy =
        other.received.iter().find(|received| received.payload().and_then(|it| it.first()) == Some(&0x1C));
    let Some(copy) = copy else { return Ok(ProbeVerdict::Wrong("no copy came".into())) };
    let good = !copy.is_reliable() && copy.payload() == Some(&raw_payload::relayed_state(state));
    Ok(ProbeVerdict::right_if(good, hex(&copy.bytes)))
}

/// Returns the ids with which a client received this line.
fn ids_of_chat_line(client: &ProbeClient, line: &str) -> Vec<u8> {
    let is_line = |payload: &&[u8]| payload.first() == Some(&0x2C) && payload.ends_with(line.as_bytes());
    let lines = client.payloads().into_iter().filter(is_line);
    lines.filter_map(|payload| payload.get(1).copied()).collect()
}

fn chat(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |one: &ProbeClient, _: &ProbeClient| vec![raw_payload::chat(one.id, HONEST_CHAT)];
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let [others, own] =
        [&exchange.receiver, &exchange.sender].map(|it| ids_of_chat_line(it, HONEST_CHAT).len());
    Ok(ProbeVerdict::right_if(
        (others, own) == (1, 1),
        format!("copies received: {others} by another player, {own} by the sender"),
    ))
}

fn chat_sender_id(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |one: &ProbeClient, other: &ProbeClient| {
        vec![raw_payload::chat(one.id, HONEST_CHAT), raw_payload::chat(other.id, SPOOFED_CHAT)]
    };
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let [honest, spoofed] =
        [HONEST_CHAT, SPOOFED_CHAT].map(|line| ids_of_chat_line(&exchange.receiver, line));
    if honest.is_empty() {
        return Ok(ProbeVerdict::Unclear("chat is not relayed at all: see S-40".into()));
    }
    // The server may also refuse the message.
    let good = honest.iter().chain(&spoofed).all(|id| *id == exchange.sender.id);
    let ids = |ids: &[u8]| {
        if ids.is_empty() { "not received".into() } else { format!("received with id {}", hex(ids)) }
    };
    let evidence = format!(
        "player {:02X} sent chat with its own id: {}; with id {:02X}: {}",
        exchange.sender.id,
        ids(&honest),
        exchange.receiver.id,
        ids(&spoofed)
    );
    Ok(ProbeVerdict::right_if(good, evidence))
}

const HONEST_CHAT: &str = "swarm probe";
const SPOOFED_CHAT: &str = "swarm spoof";

/// Returns a ship of a client.
fn ship_of(client: &ProbeClient) -> Vec<u8> {
    raw_payload::ship(client.slot, client.id, raw_payload::first_object(client.slot), &client.name, 0)
}

fn existing_ships(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one]) = target.players()? else { return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into())) };
    let ship = ship_of(&one);
    let created = one.reliable_message(&ship);
    one.send(std::slice::from_ref(&created));
    one.receive_until(ANSWER_TIMEOUT, |it| it.is_acknowledged(&created));
    let mut newcomer = target.new_client()?;
    let joined = target.join(&mut newcomer, std::slice::from_mut(&mut one));
    newcomer.receive_until(ANSWER_TIMEOUT, |it| it.payloads().contains(&ship.as_slice()));
    let is_reported = newcomer.payloads().contains(&ship.as_slice());
    one.leave();
    newcomer.leave();
    if !joined {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    }
    Ok(ProbeVerdict::right_if(
        is_reported,
        if is_reported {
            "the newcomer received the same bytes"
        } else {
            "the newcomer did not receive the ship"
        },
    ))
}

fn self_destruct(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let payloads = |one: &ProbeClient, _: &ProbeClient| vec![ship_of(one), vec![0x13]];
    let Some(exchange) = run_exchange(target, payloads)? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let event = raw_payload::exploding(raw_payload::first_object(exchange.sender.slot));
    let both =
        [&exchange.sender, &exchange.receiver].map(|it| it.has_payload(&event) && it.has_payload(&[0x36]));
    Ok(ProbeVerdict::right_if(both == [true; 2], format!("(its player, another): {both:?}")))
}

fn leave_notice(target: &ProbeTarget) -> anyhow::Result<ProbeVerdict> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(ProbeVerdict::Unclear(NOT_IN_GAME.into()));
    };
    let leaver_id = one.id;
    one.leave();
    let event = raw_payload::event(0x17, 0x866, 0, 0, &[leaver_id]);
    let gone = |it: &ProbeClient| {
        let event_received = it.payloads().iter().any(|payload| {
            payload.first() == Some(&0x17)
                && payload.len() == event.len()
                && payload.last() == Some(&leaver_id)
                && raw_payload::u32_at(payload, 5) == Some(0x0006_0005)
        });
        let notice_received = it.received.iter().any(|received| {
            received.bytes.first() == Some(&Kind::DISCONNECT.0) && received.bytes.get(5) == Some(&leaver_id)
        });
        (notice_received, event_received, it.has_payload(&[0x18]))
    };
    other.receive_until(ANSWER_TIMEOUT, |it| gone(it) == (true, true, true));
    let notices = gone(&other);
    other.leave();
    Ok(ProbeVerdict::right_if(notices.0 || notices.1, format!("(disconnect, 17, 18): {notices:?}")))
}
