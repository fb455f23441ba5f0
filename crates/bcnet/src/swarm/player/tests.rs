//! Players in a session without sockets, in virtual time.

use bcnet_session::{Config, Session};

use super::*;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 40_000);
const FRAME: Duration = Duration::from_millis(95);

/// A session with one player.
struct SoloGame {
    session: Session,
    player: SimulatedPlayer,
    tracker: DeliveryTracker,
    counters: SwarmCounters,
    now: Time,
}

impl SoloGame {
    fn new() -> Self {
        let mut config = Config::default();
        config.transport.cipher = false;
        let files = Arc::new(Manifest::placeholder());
        let profile = TrafficProfile::Recorded { time: Duration::from_secs(60) };
        let options = PlayerOptions { password: Vec::new(), files, idle: false, quick: false, profile };
        Self {
            session: Session::new(config, 1),
            player: SimulatedPlayer::new(SERVER, "Kirk".into(), options, Rng::new(1), Time::ZERO),
            tracker: DeliveryTracker::default(),
            counters: SwarmCounters::default(),
            now: Time::ZERO,
        }
    }

    /// Runs one tick of the player and of the session.
    fn frame(&mut self) {
        self.now = self.now + FRAME;
        let mut buffer = [0; 2048];
        self.player.frame(true, &mut self.tracker, self.now, &mut self.counters);
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
fn leaving_during_join_does_not_block_the_session() {
    let mut complete = SoloGame::new();
    while !complete.player.is_in_game() {
        assert!(complete.now < Time::ZERO + Duration::from_secs(60), "the player did not enter");
        complete.frame();
    }
    let frames = complete.now.as_micros() / FRAME.as_micros() as u64;
    assert!(frames > 8, "five rounds take some frames, not {frames}");
    for frame_count in 0..frames {
        let mut game = SoloGame::new();
        (0..frame_count).for_each(|_| game.frame());
        game.player.leave(&mut game.tracker, game.now, &mut game.counters);
        // The server probes the player before it believes the disconnect (T-57).
        game.run(Duration::from_millis(2_500));
        assert_eq!(game.session.players().count(), 0, "left after {frame_count} frames");
        // By now a server that still waited for answers of this player would have counted anomalies.
        game.run(Duration::from_secs(30));
        assert_eq!(game.session.counters().anomalies.total(), 0, "left after {frame_count} frames");
    }
}
