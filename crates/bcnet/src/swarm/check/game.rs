//! Rules of what a server says on top of the transport.

use bcnet_transport::wire::Kind;

use super::raw;
use super::visitor::{Heard, ROUNDS, SOON, Visitor, hex};
use super::{NOT_IN_GAME, NOT_LET_IN, Outcome, Probe, Target};

pub(super) const PROBES: &[Probe] = &[
    Probe::quick("S-06", "the status has the game's keys in their order, and ends in a query id", status),
    Probe::quick("S-05", "words that query programs append do no harm", appended),
    Probe::quick("S-08", "a list server's challenge is answered", secure),
    Probe::quick("S-20", "the five rounds of the file check come one at a time, in their order", rounds),
    Probe::quick("S-25", "28, 00 and 01 come in one datagram after the last round", start),
    Probe::quick("S-31", "35 comes before the join event of the newcomer", enter),
    Probe::quick("S-03", "two players know each other's names before they hear of each other", names),
    Probe::quick(
        "S-33",
        "a reliable message is passed on unchanged, doubles too, but not to its sender",
        relay,
    ),
    Probe::quick("S-34", "target changes and collisions are not passed on", absorbed),
    Probe::quick("S-32", "what is about another player's object is not passed on", ownership),
    Probe::quick("S-37", "states are passed on unreliably and without their hash", state),
    Probe::quick("S-40", "chat goes to everyone, its sender too", chat),
    Probe::quick("S-42", "chat has the true id of its sender, whatever it says", chat_id),
    Probe::quick("S-30", "whoever comes later is told of the ships", ships),
    Probe::quick("S-35", "a self-destruction is told to everyone", self_destruct),
    Probe::quick("S-50", "the others are told who left", left),
];

/// Returns the answer to a question in text form.
fn ask(target: &Target, question: &[u8]) -> anyhow::Result<Option<String>> {
    let mut asker = target.stranger()?;
    asker.send_raw(question);
    asker.listen(SOON, |it| !it.heard.is_empty());
    let text = |heard: &Heard| heard.bytes.iter().map(|byte| char::from(*byte)).collect();
    Ok(asker.heard.first().map(text))
}

fn status(target: &Target) -> anyhow::Result<Outcome> {
    let Some(text) = ask(target, b"\\status\\")? else { return Ok(Outcome::Wrong("no answer".into())) };
    let keys: Vec<&str> =
        text.split('\\').skip(1).step_by(2).filter(|key| !key.starts_with("player_")).collect();
    let good = keys == KEYS && !text.ends_with('\\');
    Ok(Outcome::when(good, keys.join(" ")))
}

const KEYS: [&str; 15] = [
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

fn appended(target: &Target) -> anyhow::Result<Outcome> {
    let Some(text) = ask(target, b"\\status\\xserverquery")? else {
        return Ok(Outcome::Wrong("no answer".into()));
    };
    Ok(Outcome::when(text.starts_with("\\gamename\\bcommander\\"), text.chars().take(60).collect::<String>()))
}

fn secure(target: &Target) -> anyhow::Result<Outcome> {
    let Some(text) = ask(target, b"\\secure\\LRPOPQ")? else { return Ok(Outcome::Wrong("no answer".into())) };
    Ok(Outcome::when(text.contains("\\validate\\hMwdTNWS"), text.chars().take(60).collect::<String>()))
}

fn rounds(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.identify();
    let mut order = Vec::new();
    for round in ROUNDS {
        guest.listen(SOON, |it| it.has_payload(&[0x20, round]));
        let asked = guest.payloads().into_iter().filter(|payload| payload.first() == Some(&0x20));
        order = asked.map(|request| request.get(1).copied().unwrap_or(0)).collect();
        let so_far = ROUNDS.iter().take_while(|it| **it != round).count() + 1;
        if order.len() != so_far || !guest.answer(round) {
            break;
        }
    }
    guest.leave();
    Ok(Outcome::when(order == ROUNDS, format!("asked {}", hex(&order))))
}

fn start(target: &Target) -> anyhow::Result<Outcome> {
    let Some(mut guest) = target.guest()? else { return Ok(Outcome::Unclear(NOT_LET_IN.into())) };
    guest.identify();
    let done = ROUNDS.iter().all(|round| guest.answer(*round));
    let came = done && guest.listen(SOON, |it| it.has_payload(&[0x01]));
    guest.leave();
    if !came {
        return Ok(Outcome::Wrong("no 01 after the last round".into()));
    }
    let of = |opcode: u8| {
        guest.heard.iter().find(|heard| heard.payload().and_then(|it| it.first()) == Some(&opcode))
    };
    let places = [0x28, 0x00, 0x01].map(|opcode| of(opcode).map(|heard| heard.datagram));
    let evidence = of(0x00).and_then(Heard::payload).map_or_else(|| "no settings".into(), hex);
    Ok(Outcome::when(places.iter().all(|place| place.is_some() && *place == places[0]), evidence))
}

fn enter(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut player]) = target.players()? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    player.leave();
    let opcodes: Vec<u8> = player.payloads().iter().filter_map(|payload| payload.first().copied()).collect();
    let place = |wanted| opcodes.iter().position(|opcode| *opcode == wanted);
    let good = place(0x35).zip(place(0x17)).is_some_and(|(mission, event)| mission < event);
    Ok(Outcome::when(good, format!("opcodes {}", hex(&opcodes))))
}

fn names(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    one.listen(SOON, |it| knows(it, other.id).1.is_some());
    let both = [knows(&one, other.id), knows(&other, one.id)];
    one.leave();
    other.leave();
    let good = both.iter().all(|(name, event)| name.zip(*event).is_some_and(|(name, event)| name < event));
    Ok(Outcome::when(good, format!("messages (name, join event): {both:?}")))
}

/// Returns where a visitor has heard the name and the join event of a peer.
fn knows(visitor: &Visitor, peer: u8) -> (Option<usize>, Option<usize>) {
    let is_name = |heard: &Heard| heard.bytes.first() == Some(&0x00) && heard.bytes.get(5) == Some(&peer);
    let is_event = |heard: &Heard| {
        heard.payload().is_some_and(|event| event.first() == Some(&0x17) && event.last() == Some(&peer))
    };
    (visitor.heard.iter().position(is_name), visitor.heard.iter().position(is_event))
}

/// Says something in a game of two, and how often each of them hears `copy` within a moment.
fn say_to_two(
    target: &Target,
    payloads: fn(&Visitor, &Visitor) -> Vec<Vec<u8>>,
) -> anyhow::Result<Option<Said>> {
    let Some([mut one, mut other]) = target.players()? else { return Ok(None) };
    let said = payloads(&one, &other);
    let messages: Vec<Vec<u8>> = said.iter().map(|payload| one.reliable(payload)).collect();
    let fence = one.reliable(&raw::chat(one.id, FENCE));
    one.say(&[messages, vec![fence]].concat());
    // Messages are passed on in order: when this one comes, nothing of what was said before it is still to come.
    let fenced = |it: &Visitor| it.heard.iter().any(|heard| heard.bytes.ends_with(FENCE.as_bytes()));
    other.listen(SOON, fenced);
    one.listen(SOON, fenced);
    one.leave();
    other.leave();
    Ok(Some(Said { said, one, other }))
}

const FENCE: &str = "swarm fence";

struct Said {
    said: Vec<Vec<u8>>,
    one: Visitor,
    other: Visitor,
}

impl Said {
    /// Returns what a visitor has heard with the opcode of what was said first.
    fn heard_by(&self, visitor: &Visitor) -> Vec<Vec<u8>> {
        let opcode = self.said.first().and_then(|payload| payload.first());
        let alike = visitor.payloads().into_iter().filter(|payload| payload.first() == opcode);
        alike.map(<[u8]>::to_vec).collect()
    }
}

fn relay(target: &Target) -> anyhow::Result<Outcome> {
    let payloads = |one: &Visitor, _: &Visitor| {
        let fire = raw::event(0x07, 0x8128, 0xD8, raw::first_object(one.slot) + 7, &[1, 2, 3, 4, 5, 6, 7, 8]);
        vec![fire.clone(), fire]
    };
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let (others, own) = (said.heard_by(&said.other), said.heard_by(&said.one));
    let evidence =
        format!("said twice, heard {} times by another, {} by its sender", others.len(), own.len());
    Ok(Outcome::when(others == said.said && own.is_empty(), evidence))
}

fn absorbed(target: &Target) -> anyhow::Result<Outcome> {
    let payloads = |one: &Visitor, _: &Visitor| {
        let thing = raw::first_object(one.slot) + 7;
        vec![raw::event(0x0D, 0x010C, 0x58, thing, &[0; 4]), raw::event(0x15, 0x8124, 0x50, thing, &[0; 9])]
    };
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let heard: Vec<u8> =
        [0x0D, 0x15].into_iter().filter(|opcode| said.other.has_payload(&[*opcode])).collect();
    Ok(Outcome::when(
        heard.is_empty(),
        if heard.is_empty() { "neither was heard".into() } else { hex(&heard) },
    ))
}

fn ownership(target: &Target) -> anyhow::Result<Outcome> {
    let payloads = |_: &Visitor, other: &Visitor| {
        vec![raw::event(0x08, 0x0101, 0xDA, raw::first_object(other.slot) + 7, &[])]
    };
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let heard = said.heard_by(&said.other).len();
    Ok(Outcome::when(heard == 0, format!("heard {heard} times")))
}

fn state(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let ship = raw::first_object(one.slot);
    let with_hash = (0..).map(|number| raw::state(ship, number)).find(|state| state.get(9) == Some(&0x9D));
    let state = with_hash.unwrap_or_default();
    let [low, high] = ((3 + state.len()) as u16).to_le_bytes();
    one.say(&[[&[0x32, low, high], state.as_slice()].concat()]);
    other.listen(SOON, |it| it.has_payload(&[0x1C]));
    one.leave();
    other.leave();
    let copy = other.heard.iter().find(|heard| heard.payload().and_then(|it| it.first()) == Some(&0x1C));
    let Some(copy) = copy else { return Ok(Outcome::Wrong("no copy came".into())) };
    let good = !copy.is_reliable() && copy.payload() == Some(&raw::passed_state(state));
    Ok(Outcome::when(good, hex(&copy.bytes)))
}

/// Returns the ids with which a visitor has heard this line.
fn ids_of(visitor: &Visitor, line: &str) -> Vec<u8> {
    let is_line = |payload: &&[u8]| payload.first() == Some(&0x2C) && payload.ends_with(line.as_bytes());
    let lines = visitor.payloads().into_iter().filter(is_line);
    lines.filter_map(|payload| payload.get(1).copied()).collect()
}

fn chat(target: &Target) -> anyhow::Result<Outcome> {
    let payloads = |one: &Visitor, _: &Visitor| vec![raw::chat(one.id, HONEST)];
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let [others, own] = [&said.other, &said.one].map(|it| ids_of(it, HONEST).len());
    Ok(Outcome::when(
        (others, own) == (1, 1),
        format!("heard {others} times by another, {own} by its sender"),
    ))
}

fn chat_id(target: &Target) -> anyhow::Result<Outcome> {
    let payloads =
        |one: &Visitor, other: &Visitor| vec![raw::chat(one.id, HONEST), raw::chat(other.id, SPOOFED)];
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let [honest, spoofed] = [HONEST, SPOOFED].map(|line| ids_of(&said.other, line));
    if honest.is_empty() {
        return Ok(Outcome::Unclear("chat is not passed on at all: see S-40".into()));
    }
    // It may be refused instead.
    let good = honest.iter().chain(&spoofed).all(|id| *id == said.one.id);
    let ids = |ids: &[u8]| if ids.is_empty() { "not heard".into() } else { format!("heard as {}", hex(ids)) };
    let evidence = format!(
        "by player {:02X}: said as itself {}, said as {:02X} {}",
        said.one.id,
        ids(&honest),
        said.other.id,
        ids(&spoofed)
    );
    Ok(Outcome::when(good, evidence))
}

const HONEST: &str = "swarm probe";
const SPOOFED: &str = "swarm spoof";

/// Returns a ship of a visitor.
fn ship_of(visitor: &Visitor) -> Vec<u8> {
    raw::ship(visitor.slot, visitor.id, raw::first_object(visitor.slot), &visitor.name, 0)
}

fn ships(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one]) = target.players()? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let ship = ship_of(&one);
    let created = one.reliable(&ship);
    one.say(std::slice::from_ref(&created));
    one.listen(SOON, |it| it.is_acknowledged(&created));
    let mut late = target.stranger()?;
    let joined = target.join(&mut late, std::slice::from_mut(&mut one));
    late.listen(SOON, |it| it.payloads().contains(&ship.as_slice()));
    let told = late.payloads().contains(&ship.as_slice());
    one.leave();
    late.leave();
    if !joined {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    }
    Ok(Outcome::when(told, if told { "the same bytes as said" } else { "no such ship was told" }))
}

fn self_destruct(target: &Target) -> anyhow::Result<Outcome> {
    let payloads = |one: &Visitor, _: &Visitor| vec![ship_of(one), vec![0x13]];
    let Some(said) = say_to_two(target, payloads)? else { return Ok(Outcome::Unclear(NOT_IN_GAME.into())) };
    let event = raw::exploding(raw::first_object(said.one.slot));
    let both = [&said.one, &said.other].map(|it| it.has_payload(&event) && it.has_payload(&[0x36]));
    Ok(Outcome::when(both == [true; 2], format!("(its player, another): {both:?}")))
}

fn left(target: &Target) -> anyhow::Result<Outcome> {
    let Some([mut one, mut other]) = target.players()? else {
        return Ok(Outcome::Unclear(NOT_IN_GAME.into()));
    };
    let leaver = one.id;
    one.leave();
    let event = raw::event(0x17, 0x866, 0, 0, &[leaver]);
    let gone = |it: &Visitor| {
        let told = it.payloads().iter().any(|payload| {
            payload.first() == Some(&0x17)
                && payload.len() == event.len()
                && payload.last() == Some(&leaver)
                && raw::u32_at(payload, 5) == Some(0x0006_0005)
        });
        let said = it.heard.iter().any(|heard| {
            heard.bytes.first() == Some(&Kind::DISCONNECT.0) && heard.bytes.get(5) == Some(&leaver)
        });
        (said, told, it.has_payload(&[0x18]))
    };
    other.listen(SOON, |it| gone(it) == (true, true, true));
    let told = gone(&other);
    other.leave();
    Ok(Outcome::when(told.0 || told.1, format!("(goodbye, 17, 18): {told:?}")))
}
