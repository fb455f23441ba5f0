//! `bcnet swarm`: simulated players on a real server.
//!
//! They run the original engine, do what recorded players did, and check what they hear of each other against what the
//! others were told to say. What the server should do is nowhere taken from the server's code.

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

/// How long things took, to within three in a hundred.
type DelayHistogram = crate::histogram::Histogram<5>;

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 everyone heard everything once, in order and unchanged, or every rule tried is kept; 1 not; 2 nobody
got in.

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

    /// How long to play, once everyone is there
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Seconds from one player's coming to the next: a stock server mixes up the answers of players who join at one
    /// moment
    #[arg(long, value_name = "SECONDS", value_parser = parse_pause)]
    join_every: Option<Duration>,

    /// The same seed, the same plan
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The share of datagrams that get lost, each way
    #[arg(long, default_value_t = 0.0, value_parser = parse_fraction)]
    loss: f64,

    /// Milliseconds that a datagram takes, each way
    #[arg(long, default_value_t = 0)]
    delay: u64,

    /// The password of the server
    #[arg(long, default_value = "")]
    password: String,

    /// Instead of what recorded players did, ten states and a line of chat per second and player, to compare delays
    #[arg(long)]
    steady: bool,

    /// Players answer and acknowledge at once: no frames, no thinking, no loading
    #[arg(long)]
    quick: bool,

    /// Also tell delays by what was said, from one player's socket to another's, and how long joins took
    #[arg(long)]
    report: bool,

    /// Write what the players send and receive to a capture
    #[arg(long, value_name = "FILE.pcapng", conflicts_with = "hold")]
    write: Option<PathBuf>,

    /// Join, and then do nothing until killed
    #[arg(long)]
    hold: bool,

    /// Instead, try rule by rule of PROTOCOL.md what the server does
    #[arg(long, conflicts_with_all = ["hold", "sessions", "players", "steady", "quick", "report", "join_every", "write"])]
    check: bool,

    /// With --check: also the rules that take up to a minute
    #[arg(long, requires = "check")]
    slow: bool,

    /// With --check: only these rules, such as T-60,S-33, slow or not
    #[arg(long, requires = "check", value_delimiter = ',', value_name = "RULE")]
    rules: Vec<String>,

    /// Names of the players of each session, one player for each
    #[arg(long, value_delimiter = ',', conflicts_with = "players")]
    names: Vec<String>,

    /// Tell what the process with this number takes of the processor while the players play
    #[arg(long, hide = true)]
    watch: Option<u32>,

    /// Afterwards, send as many datagrams of the same sizes to a example `echo` at this place
    #[arg(long, hide = true, value_name = "HOST:PORT", value_parser = query::parse_host, requires = "watch_echo")]
    echo: Option<HostPort<22101>>,

    /// The process that echoes
    #[arg(long, hide = true)]
    watch_echo: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns how many players each session has.
    fn players(&self) -> u16 {
        if self.names.is_empty() { self.players } else { self.names.len() as u16 }
    }
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "it must be a number from 0 to 1, such as 0.05")?;
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err("it must be at least 0 and below 1".into()) }
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let wrong = "it must be a number of seconds from 0 to 60, such as 2";
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

/// Returns what an echo of the same traffic takes, if that is wanted.
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
            // As many at a time as a server of that size would see at its start; or, to see how long a join takes, about
            // one after the other.
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

/// Waits until everyone is in the game, or has had time enough.
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
            (_, 0) => "it answers, but lets nobody into the game",
            _ => "it lets nobody in: is it full, or has it a password?",
        };
        bail!("{server}: {why}");
    }
    driver.counters.absent = driver.never_joined() as u64;
    Ok(())
}

/// Plays until everyone has a ship, and forgets how long that took.
fn warm_up(driver: &mut SwarmDriver) -> anyhow::Result<()> {
    let end = driver.clock.now() + WARM_UP_TIME;
    while driver.clock.now() < end {
        driver.run_due_frames(end)?;
    }
    driver.counters.delays = RelayDelays::default();
    driver.counters.lateness = DelayHistogram::default();
    Ok(())
}

/// Plays on, silently, until everything has been heard.
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

/// How long everyone may take to get in, once the last one has come.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it takes until all players do the same all the time.
const WARM_UP_TIME: Duration = Duration::from_secs(2);
/// How long what was said last may take to be heard.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long goodbyes take.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// How often it is looked whether everyone is done.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
