//! A host over UDP that answers `!time` in chat.
//!
//! `cargo run -p bcnet-session --example answer_time -- 22101`

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bcnet_session::game::Message;
use bcnet_session::policy::{GamePolicy, PlayerMessage, PolicyHost, Recipients, Verdict};
use bcnet_session::{Config, Session};
use bcnet_transport::Time;

#[derive(Debug)]
pub(crate) struct AnswerTime;

impl GamePolicy for AnswerTime {
    fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
        if matches!(message.message, Message::Chat(chat) if chat.text.0 == b"!time") {
            let seconds = host.game_time().as_secs();
            let answer = format!("The game clock is at {}:{:02}.", seconds / 60, seconds % 60);
            host.say(Recipients::One(message.sender.id()), &answer);
        }
        Verdict::Pass
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).ok_or("usage: answer_time PORT")?.parse()?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    socket.set_read_timeout(Some(Duration::from_millis(10)))?;
    #[expect(clippy::disallowed_methods, reason = "the caller of a session supplies the time")]
    let started = Instant::now();
    // A real host uses a secret random seed.
    let mut session = Session::new(Config::default(), 1701);
    session.set_policy(Box::new(AnswerTime), Time::ZERO);
    let mut buffer = [0; 2048];
    loop {
        let received = socket.recv_from(&mut buffer);
        let now = Time::ZERO + started.elapsed();
        if let Ok((len, SocketAddr::V4(from))) = received {
            session.handle_datagram(from, &mut buffer[..len], now);
        }
        session.handle_timeout(now);
        while let Some(transmit) = session.poll_transmit(&mut buffer, now) {
            // A datagram that cannot be sent is lost, as on the network.
            let _ = socket.send_to(&buffer[..transmit.len], transmit.to);
        }
        while let Some(event) = session.poll_event() {
            println!("{event:?}");
        }
    }
}
