//! A session runs on any engine: here on the model of the original.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, Stock};
use bcnet_session::{Config, Event, PlayerState, Session};
use bcnet_transport::wire::{BootReason, PeerId, Text};
use bcnet_transport::{self as transport, Engine, Leave, Quality, Time};

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// A host's session and one client, both on the model, in frames of 33 ms.
struct Game {
    session: Session<Stock>,
    client: Stock,
    now: Time,
    told: Vec<Event>,
    /// What the client's game was told.
    heard: Vec<(transport::Event, Vec<u8>)>,
}

impl Game {
    fn new(config: Config, password: &[u8]) -> Self {
        let params = Params { address: *HOST.ip(), ask: true, ..Params::default() };
        let session = Session::with_engine(config, Stock::host(params), 1701);
        let client = Stock::connect(Params::default(), HOST, *CLIENT.ip(), 7, password, Time::ZERO);
        Self { session, client, now: Time::ZERO, told: Vec::new(), heard: Vec::new() }
    }

    fn frame(&mut self) {
        let now = self.now;
        self.session.handle_timeout(now);
        self.client.service(now);
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, now) {
            assert_eq!(transmit.to, CLIENT);
            self.client.handle_datagram(HOST, &buffer[..transmit.len], now);
        }
        while let Some(transmit) = self.client.poll_transmit(&mut buffer) {
            self.session.handle_datagram(CLIENT, &mut buffer[..transmit.len], now);
        }
        self.told.extend(std::iter::from_fn(|| self.session.poll_event()));
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload) {
            if let transport::Event::Joined { .. } = event {
                let name = Text::encode("Kirk").expect("a name");
                Engine::identify(&mut self.client, Text::new(&name).expect("a name"), now).expect("a host");
            }
            self.heard.push((event, payload.clone()));
        }
        self.now = now + Duration::from_millis(33);
    }

    fn run(&mut self, frames: u32) {
        (0..frames).for_each(|_| self.frame());
    }

    fn say(&mut self, payload: &[u8]) {
        self.client.send(PeerId::HOST, payload, Quality::Reliable, self.now).expect("connected");
    }

    fn first_bytes(&self) -> Vec<u8> {
        let payload = |(event, payload): &(transport::Event, Vec<u8>)| {
            matches!(event, transport::Event::Received { .. }).then(|| payload.first().copied())?
        };
        self.heard.iter().filter_map(payload).collect()
    }
}

/// S-10 to S-31: the whole way into the game, and out of it.
#[test]
fn a_stock_client_joins_a_session_on_the_stock_engine() {
    let config = Config { round_timeout: Duration::from_secs(1), ..Config::default() };
    let mut game = Game::new(config, &[]);
    // It answers no question about its files, so each round takes its time.
    game.run(60);
    assert!(
        game.told.iter().any(|event| matches!(event, Event::Joined { name, slot: 0, .. } if name == "Kirk"))
    );
    game.run(180);
    assert!(game.first_bytes().ends_with(&[0x28, 0x00, 0x01]), "{:02X?}", game.first_bytes());
    game.say(&[0x2A]);
    game.run(30);
    assert_eq!(game.session.players().map(|player| player.state).collect::<Vec<_>>(), [PlayerState::InGame]);
    // Chat comes back to its sender.
    game.heard.clear();
    game.say(&[0x2C, 2, 0, 0, 0, 2, 0, b'h', b'i']);
    game.run(30);
    assert_eq!(game.first_bytes(), [0x2C]);
    game.client.leave(game.now);
    game.run(60);
    assert!(
        matches!(game.told.last(), Some(Event::Left { reason: Leave::Disconnected, .. })),
        "{:?}",
        game.told
    );
    assert!(game.client.is_closed());
    game.session.shutdown(game.now);
    game.run(60);
    assert!(game.session.is_closed());
}

/// S-11: the session decides, not the engine.
#[test]
fn a_wrong_password_is_refused_on_the_stock_engine() {
    let config = Config { password: Some("Enterprise".into()), ..Config::default() };
    let mut game = Game::new(config, b"N\0X\0");
    game.run(30);
    let reason = BootReason::WRONG_PASSWORD;
    assert!(matches!(game.told[..], [Event::Refused { from: CLIENT, reason: given }] if given == reason));
    let left = transport::Event::Left { peer: PeerId::HOST, reason: Leave::Booted(reason) };
    assert_eq!(game.heard, [(left, Vec::new())]);
}
