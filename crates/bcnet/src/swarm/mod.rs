//! `bcnet swarm`: simulated players on a real server.
//!
//! The players run the stock engine and repeat the actions of recorded players. They check received messages
//! against the plan of the others. No expectation is taken from the server's code.

mod baseline;
mod check;
mod counters;
mod delay;
mod delivery_tracker;
mod driver;
mod payload;
mod plan;
mod player;
mod report;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use bcnet_lab::Rng;
use bcnet_session::Manifest;
use bcnet_transport::Time;
use bcnet_transport::wire::Text;

use crate::CommandStatus;
use crate::config::HostPort;
use crate::lookup;
use crate::query;
use baseline::EchoResult;
use delay::RelayDelays;
use driver::{FrameMode, LinkConditions, SwarmDriver};
use plan::TrafficProfile;
use player::{PlayerOptions, SimulatedPlayer};
use report::{CpuMeter, CpuTimes, LiveTable};

/// A histogram of times, exact to three percent.
type DelayHistogram = crate::histogram::Histogram<5>;

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 every player received every message once, in order and unchanged (with --check: the
server follows every tested rule), 1 otherwise, 2 no player could join.

Examples:
  bcnet swarm 127.0.0.1 --players 8 --seconds 60
  bcnet swarm 127.0.0.1 --sessions 250 --players 8 --json
  bcnet swarm 127.0.0.1 --players 3 --loss 0.05 --delay 80
  bcnet swarm 127.0.0.1 --sessions 10 --steady --report
  bcnet swarm 127.0.0.1 --players 8 --join-every 2
  bcnet swarm 127.0.0.1 --hold --names Cady,Uhura
  bcnet swarm 127.0.0.1 --check")]
pub(crate) struct Args {
    /// The server, on port 22101 if none is given
    #[arg(value_name = "HOST[:PORT]", value_parser = query::parse_host)]
    host: HostPort<22101>,

    /// Players in each session
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=16))]
    players: u16,

    /// Sessions, on consecutive ports
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    sessions: u16,

    /// Seconds to play after everyone has joined
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Seconds between the joins of two players
    ///
    /// A stock server confuses the answers of players who join at the same moment.
    #[arg(long, value_name = "SECONDS", value_parser = parse_pause)]
    join_every: Option<Duration>,

    /// Seed of the plan; the same seed gives the same plan
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Share of lost datagrams, each way
    #[arg(long, default_value_t = 0.0, value_parser = parse_fraction)]
    loss: f64,

    /// Delay of a datagram in milliseconds, each way
    #[arg(long, default_value_t = 0)]
    delay: u64,

    /// Password of the server
    #[arg(long, default_value = "")]
    password: String,

    /// Send ten states and a line of chat per second and player, to compare delays
    #[arg(long)]
    steady: bool,

    /// Answer and acknowledge at once: no ticks, no thinking time, no loading time
    #[arg(long)]
    quick: bool,

    /// Also print delays between players by kind of message, and join times
    #[arg(long)]
    report: bool,

    /// Write the players' traffic to a capture
    #[arg(long, value_name = "FILE.pcapng", conflicts_with = "hold")]
    write: Option<PathBuf>,

    /// Join, and then do nothing until killed
    #[arg(long)]
    hold: bool,

    /// Test the server rule by rule of PROTOCOL.md instead
    #[arg(long, conflicts_with_all = ["hold", "sessions", "players", "steady", "quick", "report", "join_every", "write"])]
    check: bool,

    /// With --check: also test the rules that take up to a minute
    #[arg(long, requires = "check")]
    slow: bool,

    /// With --check: at the end, also test the rules whose test ends a stock server
    #[arg(long, requires = "check")]
    lethal: bool,

    /// With --check: test only these rules, such as T-60,S-33
    #[arg(long, requires = "check", value_delimiter = ',', value_name = "RULE")]
    rules: Vec<String>,

    /// Names of the players of each session, one player for each
    #[arg(long, value_delimiter = ',', conflicts_with = "players")]
    names: Vec<String>,

    /// Print the processor time of the process with this id during the run
    #[arg(long, hide = true)]
    watch: Option<u32>,

    /// Afterwards, send the same number and sizes of datagrams to the example `echo` at this address
    #[arg(long, hide = true, value_name = "HOST:PORT", value_parser = query::parse_host, requires = "watch_echo")]
    echo: Option<HostPort<22101>>,

    /// Process id of the echo
    #[arg(long, hide = true)]
    watch_echo: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the number of players of each session.
    fn players(&self) -> u16 {
        if self.names.is_empty() { self.players } else { self.names.len() as u16 }
    }
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number from 0 to 1, such as 0.05")?;
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err("expected at least 0 and below 1".into()) }
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let wrong = "expected a number of seconds from 0 to 60, such as 2";
    let seconds: f64 = text.parse().map_err(|_| wrong)?;
    if (0.0..=60.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong.into()) }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let server = lookup::first_ipv4_address(&args.host)?;
    if args.check {
        return check::run(server, args);
    }
    let mut driver = create_players(args, server)?;
    let last = args.join_every.unwrap_or_default() * u32::from(args.players());
    wait_until_joined(&mut driver, server, last + JOIN_TIMEOUT)?;
    if args.hold {
        return hold(&mut driver);
    }
    driver.players_act = true;
    if args.steady {
        warm_up(&mut driver)?;
    }
    let mut live = LiveTable::new();
    let usage = [args.watch, Some(std::process::id())].map(CpuMeter::start);
    let end = driver.clock.now() + Duration::from_secs(args.seconds);
    driver.counters.datagrams_sent = Default::default();
    driver.counters.datagrams_received = Default::default();
    while driver.clock.now() < end {
        driver.run_due_frames(end)?;
        live.print_line(&driver);
    }
    let traffic = (driver.counters.datagrams_sent.clone(), driver.counters.datagrams_received.clone());
    let [server_cpu, own_cpu] = usage.map(CpuMeter::end);
    driver.players_act = false;
    drain(&mut driver)?;
    driver.finish_capture()?;
    (driver.counters.datagrams_sent, driver.counters.datagrams_received) = traffic;
    let echoed = measure_echo(args, &driver)?;
    let verdict =
        if driver.counters.findings() == 0 { CommandStatus::Clean } else { CommandStatus::Findings };
    report::print(args, &driver.counters, CpuTimes { server: server_cpu, own: own_cpu }, echoed)?;
    Ok(verdict)
}

/// Measures an echo of the same traffic, if requested.
fn measure_echo(args: &Args, driver: &SwarmDriver) -> anyhow::Result<Option<(EchoResult, Option<f64>)>> {
    let Some(echo) = &args.echo else { return Ok(None) };
    let usage = CpuMeter::start(args.watch_echo);
    let traffic = driver.counters.all_datagrams();
    let time = Duration::from_secs(args.seconds);
    let echoed = baseline::run(driver, args.sessions, lookup::first_ipv4_address(echo)?, &traffic, time);
    Ok(Some((echoed, usage.end())))
}

fn create_players(args: &Args, server: SocketAddrV4) -> anyhow::Result<SwarmDriver> {
    let last = u32::from(server.port()) + u32::from(args.sessions) - 1;
    ensure!(last <= u32::from(u16::MAX), "--sessions {}: there are no ports beyond 65535", args.sessions);
    let delay = 2 * Duration::from_millis(args.delay);
    let frame_mode = FrameMode { quick: args.quick, steady: args.steady };
    let conditions = LinkConditions { loss: args.loss, delay };
    let mut driver = SwarmDriver::new(args.seed, args.sessions.into(), conditions, frame_mode)?;
    if let Some(path) = &args.write {
        driver.start_capture(path, server)?;
    }
    let mut rng = Rng::new(args.seed);
    let options = PlayerOptions {
        files: Arc::new(Manifest::placeholder()),
        password: Text::encode(&args.password).unwrap_or_default(),
        idle: args.hold,
        quick: args.quick,
        profile: if args.steady {
            TrafficProfile::Steady
        } else {
            TrafficProfile::Recorded { time: Duration::from_secs(args.seconds) }
        },
    };
    let players = args.players();
    for session in 0..args.sessions {
        for number in 0..players {
            let name = args.names.get(usize::from(number)).cloned();
            let name = name.unwrap_or_else(|| format!("Swarm {session}-{number}"));
            let server = SocketAddrV4::new(*server.ip(), server.port() + session);
            // The players join at random times within a few seconds, like the rush after the start of a server.
            // With --steady they join about one after the other, so that they do not delay each other's joins.
            let pause = if args.steady { 50 } else { 1 };
            let ramp = (pause * u64::from(args.sessions) * u64::from(players)).min(5_000);
            let joins_at = Duration::from_millis(rng.below(ramp));
            let joins_at = Time::ZERO + args.join_every.map_or(joins_at, |every| every * u32::from(number));
            let player =
                SimulatedPlayer::new(server, name, options.clone(), Rng::new(rng.next_u64()), joins_at);
            driver.add_player(player, session.into(), joins_at)?;
        }
    }
    Ok(driver)
}

/// Waits until everyone has joined, or the time is over.
fn wait_until_joined(driver: &mut SwarmDriver, server: SocketAddrV4, time: Duration) -> anyhow::Result<()> {
    let end = driver.clock.now() + time;
    while driver.clock.now() < end && driver.never_joined() > 0 {
        let pause = driver.clock.now() + POLL_INTERVAL;
        while driver.clock.now() < pause {
            driver.run_due_frames(pause)?;
        }
    }
    if driver.never_joined() == driver.endpoints.len() {
        let why = match (driver.counters.datagrams_received.count, driver.counters.refused) {
            (0, _) => "nobody answers",
            (_, 0) => "the server answers, but no player can join",
            _ => "the server admits no player: is it full, or does it need --password?",
        };
        bail!("{server}: {why}");
    }
    driver.counters.absent = driver.never_joined() as u64;
    Ok(())
}

/// Plays for [`WARM_UP_TIME`], so that everyone has a ship, and discards the measured delays.
fn warm_up(driver: &mut SwarmDriver) -> anyhow::Result<()> {
    let end = driver.clock.now() + WARM_UP_TIME;
    while driver.clock.now() < end {
        driver.run_due_frames(end)?;
    }
    driver.counters.delays = RelayDelays::default();
    driver.counters.lateness = DelayHistogram::default();
    Ok(())
}

/// Waits until all messages have arrived, at most [`DRAIN_TIMEOUT`]. Then all players leave.
fn drain(driver: &mut SwarmDriver) -> anyhow::Result<()> {
    let end = driver.clock.now() + DRAIN_TIMEOUT;
    while driver.clock.now() < end && driver.undelivered() > 0 {
        let pause = driver.clock.now() + POLL_INTERVAL;
        while driver.clock.now() < pause {
            driver.run_due_frames(pause)?;
        }
    }
    driver.leave_all();
    let end = driver.clock.now() + LEAVE_TIME;
    while driver.clock.now() < end {
        driver.run_due_frames(end)?;
    }
    Ok(())
}

fn hold(driver: &mut SwarmDriver) -> anyhow::Result<CommandStatus> {
    println!("swarm ready players={} absent={}", driver.players_in_game(), driver.counters.absent);
    loop {
        driver.run_due_frames(driver.clock.now() + POLL_INTERVAL)?;
    }
}

/// Longest wait for all players to be in the game, counted from the last planned join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until all players have a steady rate.
const WARM_UP_TIME: Duration = Duration::from_secs(2);
/// Longest time for the last messages to arrive.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Time to send the disconnect messages.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// Interval of the test whether everyone is done.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
