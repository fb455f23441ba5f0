//! A policy that refuses a ship class, shown on an empty session.
//!
//! `cargo run -p bcnet-session --example refuse_class`

use bcnet_session::game::{Created, DestroyObject, Message, Species};
use bcnet_session::policy::{GamePolicy, PlayerMessage, PolicyHost, Recipients, SendSettings, Verdict};
use bcnet_session::{Config, Session};
use bcnet_transport::Time;

/// Refuses ships of one class. Other players do not see such a ship, and its owner loses it.
#[derive(Debug)]
pub(crate) struct RefuseClass {
    pub(crate) species: Species,
    /// The number of refused ships.
    pub(crate) refused: u32,
}

impl GamePolicy for RefuseClass {
    fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
        let created = match message.message {
            Message::ObjectCreate(create) => &create.object,
            Message::ObjectCreateTeam(create) => &create.object,
            _ => return Verdict::Pass,
        };
        match created {
            Created::Ship { object, ship } if ship.species == self.species => {
                self.refused += 1;
                let owner = Recipients::One(message.sender.id());
                let remove = Message::DestroyObject(DestroyObject { object: *object });
                host.send(owner, &remove, SendSettings::default());
                host.say(owner, "This server does not allow that ship. Please choose another.");
                Verdict::Drop
            }
            _ => Verdict::Pass,
        }
    }
}

fn main() {
    let mut session = Session::new(Config::default(), 1701);
    session.set_policy(Box::new(RefuseClass { species: Species(5), refused: 0 }), Time::ZERO);
    // The caller drives the session here, as the example `answer_time` does.
    let refused = session.policy::<RefuseClass>().map(|policy| policy.refused);
    println!("refused ships: {}", refused.unwrap_or(0));
}
