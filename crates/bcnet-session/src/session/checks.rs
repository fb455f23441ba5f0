//! Checks of messages of players in the game ([S-32], [S-34]). They change no state.
//!
//! [S-32]: bcnet_transport::wire::protocol#s-32
//! [S-34]: bcnet_transport::wire::protocol#s-34

use bcnet_transport::wire::PeerId;

use crate::config::Config;
use crate::game::field::Cut;
use crate::game::{self, Check, Creation, EventClass, ObjectClass, ObjectId, Opcode, Rule, Species};
use crate::stats::Anomaly;

/// The effect of a message that has passed the checks, with the values that the checks have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The others get copies.
    Relay,
    /// The others get copies with clean texts.
    Text,
    /// A shot, which may count for a kill credit (S-45). The others get copies.
    Shot,
    /// A ship explodes. The others get copies.
    Explosion,
    /// The others get unreliable copies, which newer ones supersede.
    StateUpdate,
    /// A message of a mod: the others get copies with the same reliability.
    Mod,
    /// An unreliable message of a mod within the limits of those.
    UnreliableMod,
    /// An object is created. If it is a ship, the session stores it.
    Create(Option<(ObjectId, Species)>),
    /// The player chooses this team.
    Team(u8),
    /// The player requests this object.
    RequestObject(ObjectId),
    /// A line of chat.
    Chat {
        /// True if it is for the player's team.
        team: bool,
    },
    /// The player destroys its ship.
    SelfDestruct,
    /// None.
    Absorb,
}

/// Checks a message of a player in the game, and returns its effect.
#[inline]
pub(super) fn check(
    (opcode, rule): (Opcode, Rule),
    payload: &[u8],
    (peer, slot): (PeerId, u8),
    config: &Config,
) -> Result<Effect, Anomaly> {
    Ok(match rule {
        Rule::Relay(Check::Event) => match check_event(payload, slot, config.allow_mods)? {
            EventClass::EXPLODING => Effect::Explosion,
            EventClass::WARP => Effect::Text,
            _ => Effect::Relay,
        },
        Rule::Relay(Check::Object) => {
            check_owner(game::first_object(payload)?, slot)?;
            if opcode == Opcode::ENTER_SET { Effect::Text } else { Effect::Shot }
        }
        Rule::StateUpdate => {
            check_owner(game::state_head(payload)?.object, slot)?;
            Effect::StateUpdate
        }
        Rule::Create => {
            let created = read_creation(payload, slot, config.allow_mods)?;
            let is_ship = created.class == ObjectClass::SHIP;
            Effect::Create(is_ship.then_some((created.object, created.species)))
        }
        // S-39: a player chooses its own team only.
        Rule::Team => match game::team_choice(payload)? {
            chosen if chosen.peer == i32::from(peer.0) => Effect::Team(chosen.team),
            _ => return Err(Anomaly::NotOwner),
        },
        Rule::Unknown if !config.forward_unknown => return Err(Anomaly::UnknownOpcode),
        Rule::Unknown => Effect::Mod,
        Rule::HostOnly => return Err(Anomaly::HostOnly),
        Rule::RequestObject => Effect::RequestObject(game::first_object(payload)?),
        Rule::Chat | Rule::TeamChat => {
            let (claimed, len) = game::chat_lengths(payload)?;
            if claimed != len || len > MAX_CHAT_LEN {
                return Err(Anomaly::BadChat);
            }
            Effect::Chat { team: rule == Rule::TeamChat }
        }
        Rule::SelfDestruct => Effect::SelfDestruct,
        // Only a policy sees these. The ship of a collision's report may be its cause.
        Rule::Absorb => {
            if matches!(opcode, Opcode::COLLISION_EFFECT | Opcode::PYTHON_EVENT_2) {
                let head = game::event_head(payload)?;
                check_owner(head.source, slot).or_else(|_| check_owner(head.related, slot))?;
            }
            Effect::Absorb
        }
    })
}

/// Checks that an event is about one of the sender's objects, and returns its class (S-32).
///
/// An event is about the object that it happens to. If there is none, it is about the object that causes it.
fn check_event(payload: &[u8], slot: u8, mods: bool) -> Result<EventClass, Anomaly> {
    let head = game::event_head(payload)?;
    if !mods && !head.class.is_from_clients() {
        return Err(Anomaly::BadEvent);
    }
    let subject = head.subject();
    if subject != ObjectId::NONE {
        check_owner(subject, slot)?;
    }
    Ok(head.class)
}

/// S-32: checks that an object belongs to the sender's slot.
fn check_owner(object: ObjectId, slot: u8) -> Result<(), Anomaly> {
    if object.owner() == Some(slot) { Ok(()) } else { Err(Anomaly::NotOwner) }
}

/// S-32: reads a message that creates an object. Objects that would crash stock clients are an error.
fn read_creation(payload: &[u8], slot: u8, mods: bool) -> Result<Creation<'_>, Anomaly> {
    if payload.len() > MAX_CREATE_LEN {
        return Err(Anomaly::TooLarge);
    }
    let created = Creation::read(payload)?;
    let is_known = mods || created.species.is_stock();
    if !matches!(created.class, ObjectClass::SHIP | ObjectClass::TORPEDO) || !is_known {
        return Err(Anomaly::BadObject);
    }
    if created.slot != slot {
        return Err(Anomaly::NotOwner);
    }
    check_owner(created.object, slot)?;
    match created.ship {
        Ok(_) => Ok(created),
        Err(_) => Err(Anomaly::TooShort),
    }
}

/// Converts the error for a payload that ends inside a field that is checked.
impl From<Cut> for Anomaly {
    fn from(_: Cut) -> Self {
        Self::TooShort
    }
}

/// The longest text of a line of chat.
const MAX_CHAT_LEN: usize = 512;
/// The largest message that creates an object. Stock messages of that kind have about 120 bytes.
const MAX_CREATE_LEN: usize = 1024;
