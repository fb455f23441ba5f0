//! Players on a session without sockets, in virtual time.

use bcnet_session::{Config, Session};

use super::*;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 40_000);
const FRAME: Duration = Duration::from_millis(95);

/// A session with one player.
struct Game {
    session: Session,
    player: Player,
    ledger: Ledger,
    totals: SwarmTotals,
    now: Time,
}

impl Game {
    fn new() -> Self {
        let mut config = Config::default();
        config.transport.cipher = false;
        let files = Arc::new(Manifest::stand_in());
        let profile = TrafficProfile::Recorded { time: Duration::from_secs(60) };
        let options = PlayerOptions { password: Vec::new(), files, idle: false, quick: false, profile };
        Self {
            session: Session::new(config, 1),
            player: Player::new(SERVER, "Kirk".into(), options, Rng::new(1), Time::ZERO),
            ledger: Ledger::default(),
            totals: SwarmTotals::default(),
            now: Time::ZERO,
        }
    }

    /// One frame of the player, and what the session makes of it.
    fn frame(&mut self) {
        self.now = self.now + FRAME;
        let mut buffer = [0; 2048];
        self.player.frame(true, &mut self.ledger, self.now, &mut self.totals);
        while let Some(transmit) = self.player.client.poll_transmit(&mut buffer, self.now) {
            self.session.handle_datagram(CLIENT, &mut buffer[..transmit.len], self.now);
        }
        self.session.handle_timeout(self.now);
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, self.now) {
            self.player.client.handle_datagram(SERVER, &mut buffer[..transmit.len], self.now);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.frame();
        }
    }
}

#[test]
fn who_leaves_at_any_moment_of_joining_is_not_waited_for() {
    let mut whole = Game::new();
    while !whole.player.is_in_game() {
        whole.frame();
    }
    let frames = whole.now.as_micros() / FRAME.as_micros() as u64;
    assert!(frames > 8, "five rounds take some frames, not {frames}");
    for leaves in 0..frames {
        let mut game = Game::new();
        (0..leaves).for_each(|_| game.frame());
        game.player.leave(&mut game.ledger, game.now, &mut game.totals);
        game.run(Duration::from_secs(1));
        assert_eq!(game.session.players().count(), 0, "left after {leaves} frames");
        // The server would have missed answers by now.
        game.run(Duration::from_secs(30));
        assert_eq!(game.session.counters().anomalies.total(), 0, "left after {leaves} frames");
    }
}
