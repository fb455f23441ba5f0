//! What a hook is told, and how it gets away from the threads that play: copied into a queue that never waits.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use bcnet_session::{Event, Session, Summary};
use bcnet_transport::wire::PeerId;
use bcnet_udp::wall_now;

use crate::bans::Moment;
use crate::config::HookEvent;
use crate::join::CHECK_NAME;
use crate::serve::event_log::{Goodbye, why};

/// Something that happened in a session.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) at: Moment,
    pub(super) session: String,
    pub(super) port: u16,
    /// How many take part, and how many can.
    pub(super) players: usize,
    pub(super) limit: usize,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Joined { player: String },
    Left { player: String, reason: String },
    RoundEnded(Summary),
    Full,
    MasterLost { master: SocketAddrV4 },
}

impl What {
    pub(super) const fn event(&self) -> HookEvent {
        match self {
            Self::Joined { .. } => HookEvent::Joined,
            Self::Left { .. } => HookEvent::Left,
            Self::RoundEnded(_) => HookEvent::RoundEnded,
            Self::Full => HookEvent::Full,
            Self::MasterLost { .. } => HookEvent::MasterLost,
        }
    }
}

/// Which events any hook wants to be told of.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted(Arc<AtomicU8>);

impl Wanted {
    pub(super) fn set(&self, events: impl Iterator<Item = HookEvent>) {
        self.0.store(events.fold(0, |all, event| all | bit(event)), Ordering::Relaxed);
    }

    fn has(&self, event: HookEvent) -> bool {
        self.0.load(Ordering::Relaxed) & bit(event) != 0
    }
}

const fn bit(event: HookEvent) -> u8 {
    1 << event as u8
}

/// How many found no room on their way to the hooks, of each event.
#[derive(Debug, Clone, Default)]
pub(super) struct Dropped(Arc<[AtomicU64; HookEvent::ALL.len()]>);

impl Dropped {
    pub(super) fn add(&self, event: HookEvent) {
        self.of(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many there were since this was called last.
    pub(super) fn take(&self, event: HookEvent) -> u64 {
        self.of(event).swap(0, Ordering::Relaxed)
    }

    fn of(&self, event: HookEvent) -> &AtomicU64 {
        &self.0[event as usize]
    }
}

/// Tells of one session. It belongs to the thread that plays.
#[derive(Debug, Default)]
pub(in crate::serve) struct Notifier {
    way: Option<Way>,
    /// Who takes part, as far as was told.
    inside: Vec<PeerId>,
}

/// The way to the thread that hands notices to the hooks.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) wanted: Wanted,
    pub(super) notices: SyncSender<Notice>,
    pub(super) dropped: Dropped,
}

impl Notifier {
    pub(super) const fn new(way: Way) -> Self {
        Self { way: Some(way), inside: Vec::new() }
    }

    /// The session begins anew with nobody in it, whatever was told of the one before.
    pub(in crate::serve) fn begin_anew(&mut self) {
        self.inside.clear();
    }

    /// Looks at an event before it is logged.
    pub(in crate::serve) fn see(&mut self, event: &Event, goodbye: Goodbye, session: &Session, port: u16) {
        let limit = usize::from(session.config().player_limit);
        match event {
            // A monitor looks whether players can join, day and night.
            Event::InGame { name, .. } if name == CHECK_NAME => {}
            Event::InGame { peer, name } => {
                self.inside.push(*peer);
                self.tell(What::Joined { player: name.clone() }, session, port);
                if session.players_in_game() >= limit {
                    tracing::info!(event = "full", port, players = limit);
                    self.tell(What::Full, session, port);
                }
            }
            Event::Left { peer, name, reason, .. } => {
                // Who never got in was never told of.
                if let Some(at) = self.inside.iter().position(|inside| inside == peer) {
                    self.inside.swap_remove(at);
                    let reason = why(*reason, goodbye);
                    self.tell(What::Left { player: name.clone(), reason }, session, port);
                }
            }
            // A round in which nobody took part is of interest to nobody.
            Event::RoundEnded { summary } if summary.players.iter().all(|one| one.name == CHECK_NAME) => {}
            Event::RoundEnded { summary } => self.tell(What::RoundEnded(summary.clone()), session, port),
            Event::MasterLost { master } => {
                self.tell(What::MasterLost { master: *master }, session, port);
            }
            Event::Joining { .. }
            | Event::Joined { .. }
            | Event::Chat { .. }
            | Event::Refused { .. }
            | Event::ChecksumMismatch { .. }
            | Event::ManifestLearned { .. }
            | Event::Anomaly { .. }
            | Event::RoundStarted { .. }
            | Event::MasterSeen { .. } => {}
        }
    }

    fn tell(&self, what: What, session: &Session, port: u16) {
        let Some(way) = self.way.as_ref().filter(|way| way.wanted.has(what.event())) else { return };
        let notice = Notice {
            at: Moment(wall_now().as_secs()),
            session: session.config().name.clone(),
            port,
            players: session.players_in_game(),
            limit: usize::from(session.config().player_limit),
            what,
        };
        if let Err(TrySendError::Full(notice) | TrySendError::Disconnected(notice)) =
            way.notices.try_send(notice)
        {
            way.dropped.add(notice.what.event());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Duration;

    use bcnet_session::{Config, EndReason, Participant, Score, System};
    use bcnet_transport::Leave;

    use super::*;

    fn told(queue: &mpsc::Receiver<Notice>) -> Vec<HookEvent> {
        queue.try_iter().map(|notice| notice.what.event()).collect()
    }

    /// A session that has failed does not tell who was in it, and ids are given out again.
    #[test]
    fn who_was_in_a_session_that_failed_is_forgotten() {
        let (notices, queue) = mpsc::sync_channel(9);
        let way = Way { wanted: Wanted::default(), notices, dropped: Dropped::default() };
        way.wanted.set(HookEvent::ALL.into_iter());
        let (mut notifier, session) = (Notifier::new(way), Session::new(Config::default(), 1));
        let (peer, name) = (PeerId(2), "Alice".to_owned());
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let left = Event::Left { peer, name: name.clone(), address, reason: Leave::Disconnected };
        for is_anew in [false, true] {
            notifier.see(&Event::InGame { peer, name: name.clone() }, Goodbye::ServerEnds, &session, 22101);
            if is_anew {
                notifier.begin_anew();
            }
            notifier.see(&left, Goodbye::ServerEnds, &session, 22101);
            let expected = [HookEvent::Joined, HookEvent::Left];
            assert_eq!(told(&queue), expected[..if is_anew { 1 } else { 2 }]);
        }
    }

    #[test]
    fn a_check_whether_players_can_join_is_told_to_nobody() {
        let (notices, queue) = mpsc::sync_channel(9);
        let way = Way { wanted: Wanted::default(), notices, dropped: Dropped::default() };
        way.wanted.set(HookEvent::ALL.into_iter());
        let (mut notifier, session) = (Notifier::new(way), Session::new(Config::default(), 1));
        let participant = |name: &str| Participant {
            name: name.into(),
            score: Score::default(),
            played: Duration::from_secs(1),
        };
        for (name, expected) in [("bcnet", vec![]), ("Bcnet", HookEvent::ALL[..3].to_vec())] {
            let (peer, address) = (PeerId(2), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
            let summary = Summary {
                round: 1,
                system: System::default(),
                duration: Duration::from_secs(1),
                reason: EndReason::Empty,
                players: vec![participant(name)],
            };
            let name = name.to_owned();
            notifier.see(&Event::InGame { peer, name: name.clone() }, Goodbye::ServerEnds, &session, 22101);
            notifier.see(
                &Event::Left { peer, name, address, reason: Leave::Disconnected },
                Goodbye::ServerEnds,
                &session,
                22101,
            );
            notifier.see(&Event::RoundEnded { summary }, Goodbye::ServerEnds, &session, 22101);
            assert_eq!(told(&queue), expected);
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_by_what_it_was() {
        let (notices, queue) = mpsc::sync_channel(1);
        let way = Way { wanted: Wanted::default(), notices, dropped: Dropped::default() };
        way.wanted.set(HookEvent::ALL.into_iter());
        let dropped = way.dropped.clone();
        let (mut notifier, session) = (Notifier::new(way), Session::new(Config::default(), 1));
        let master = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900);
        for _ in 0..3 {
            notifier.see(&Event::MasterLost { master }, Goodbye::ServerEnds, &session, 22101);
        }
        notifier.see(
            &Event::InGame { peer: PeerId(2), name: "Alice".into() },
            Goodbye::ServerEnds,
            &session,
            22101,
        );
        assert_eq!(told(&queue), [HookEvent::MasterLost]);
        assert_eq!(HookEvent::ALL.map(|event| dropped.take(event)), [1, 0, 0, 0, 2]);
        assert_eq!(dropped.take(HookEvent::MasterLost), 0, "they are told once");
    }
}
