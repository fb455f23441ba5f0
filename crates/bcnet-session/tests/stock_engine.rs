//! A session on another engine: the model of the stock engine.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, StockEngine};
use bcnet_session::client::{self, Client, ClientOptions, ClientState, DisconnectReason};
use bcnet_session::{Config, Event, JoinRefusal, PlayerState, Session};
use bcnet_transport::wire::BootReason;
use bcnet_transport::{LeaveReason, Time};

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// A session and one client, both on the stock engine, in frames of 33 ms.
struct StockGame {
    session: Session<StockEngine>,
    client: Client<StockEngine>,
    now: Time,
    session_events: Vec<Event>,
    /// The events of the client, with their payloads.
    client_events: Vec<(client::Event, Vec<u8>)>,
}

impl StockGame {
    fn new(config: Config, password: &[u8]) -> Self {
        let params = Params { address: *HOST.ip(), session_decides_admission: true, ..Params::default() };
        let session = Session::with_engine(config, StockEngine::host(params), 1701);
        let engine = StockEngine::connect(Params::default(), HOST, *CLIENT.ip(), 7, password, Time::ZERO);
        let client = Client::new(engine, ClientOptions::with_name("Kirk"), Time::ZERO);
        Self { session, client, now: Time::ZERO, session_events: Vec::new(), client_events: Vec::new() }
    }

    fn frame(&mut self) {
        let now = self.now;
        self.session.handle_timeout(now);
        self.client.handle_timeout(now);
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, now) {
            assert_eq!(transmit.to, CLIENT);
            self.client.handle_datagram(HOST, &mut buffer[..transmit.len], now);
        }
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            self.session.handle_datagram(CLIENT, &mut buffer[..transmit.len], now);
        }
        self.session_events.extend(std::iter::from_fn(|| self.session.poll_event()));
        let mut payload = Vec::new();
        while let Some(event) = self.client.poll_event(&mut payload, now) {
            self.client_events.push((event, payload.clone()));
        }
        self.now = now + Duration::from_millis(33);
    }

    fn run(&mut self, frames: u32) {
        (0..frames).for_each(|_| self.frame());
    }

    /// Returns the opcodes of the received game messages.
    fn first_bytes(&self) -> Vec<u8> {
        self.client_events.iter().filter_map(|(_, payload)| payload.first().copied()).collect()
    }
}

/// S-10 to S-31: a client joins, chats and leaves.
#[test]
fn client_joins_a_session_on_the_stock_engine() {
    let config = Config { round_timeout: Duration::from_secs(1), ..Config::default() };
    let mut game = StockGame::new(config, &[]);
    // The client answers no file check request, so each round lasts until its timeout.
    game.run(60);
    assert!(
        game.session_events
            .iter()
            .any(|event| matches!(event, Event::Joined { name, slot: 0, .. } if name == "Kirk"))
    );
    game.run(180);
    assert!(game.first_bytes().ends_with(&[0x28, 0x00, 0x01]), "{:02X?}", game.first_bytes());
    game.client.enter(game.now).expect("the client is loading");
    game.run(30);
    assert_eq!(game.session.players().map(|player| player.state).collect::<Vec<_>>(), [PlayerState::InGame]);
    // Chat is relayed to its sender.
    game.client_events.clear();
    game.client.chat("hi", game.now).expect("the client is in the game");
    game.run(30);
    assert_eq!(game.first_bytes(), [0x2C]);
    game.client.leave(game.now);
    game.run(60);
    assert!(
        matches!(
            game.session_events[..],
            [.., Event::Left { reason: LeaveReason::Disconnected, .. }, Event::RoundEnded { .. }]
        ),
        "{:?}",
        game.session_events
    );
    assert!(game.client.is_closed());
    game.session.shutdown(game.now);
    game.run(60);
    assert!(game.session.is_closed());
}

/// S-11: the session decides on admission, not the engine.
#[test]
fn wrong_password_is_refused_on_the_stock_engine() {
    let config = Config { password: Some("Enterprise".into()), ..Config::default() };
    let mut game = StockGame::new(config, b"N\0X\0");
    game.run(30);
    let reason = BootReason::WRONG_PASSWORD;
    assert!(matches!(
        game.session_events[..],
        [Event::Refused { from: CLIENT, refusal: JoinRefusal::WrongPassword }]
    ));
    let gone =
        client::Event::Gone { state: ClientState::Connecting, reason: DisconnectReason::Booted(reason) };
    assert_eq!(game.client_events, [(gone, Vec::new())]);
}
