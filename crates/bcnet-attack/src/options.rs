//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;

use crate::attacks::{ATTACKS, Attack};
use crate::metrics::{AttackResult, AttackSkipped};
use crate::sandbox::Sandbox;
use bcnet_udp::Clock;

#[derive(Parser)]
#[command(
    name = "bcnet-attack",
    about = "Attack a bcnet server, proxy or list server that this program starts itself, and measure its victims",
    after_help = "\
Attacks run in a network namespace that the program creates: any source address can be forged there, and no packet leaves \
the machine. That needs root or a system on which users may create namespaces, and `ip` of iproute2. With --loopback, \
attacks run at 127.0.0.0/8, and attacks with forged addresses are skipped. Every other target is refused.

Each attack ends by itself. The output shows each value without and with the attack, and its limit. Delays mean little on \
a busy machine.

Exit codes: 0 all values are within their limits, 1 a limit is exceeded, 2 an attack could not run.

Examples:
  bcnet-attack list
  bcnet-attack all --quick
  bcnet-attack restart-flood --rate 3000 --seconds 20 --bcnet target/release/bcnet
  bcnet-attack all --minutes 10 --json > attacks.json"
)]
struct Args {
    /// Names of attacks, `all`, or `list` to show all attacks
    #[arg(required = true, value_name = "ATTACK")]
    attacks: Vec<String>,

    /// Program to attack (default: `bcnet` in the directory of this program)
    #[arg(long, value_name = "PATH")]
    bcnet: Option<PathBuf>,

    /// Duration of each measurement in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Duration of each measurement in minutes
    #[arg(long, conflicts_with_all = ["seconds", "quick"], value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: Option<u64>,

    /// Measure for 4 seconds each, with few join attempts
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,

    /// Datagrams per second of floods (default: as each attack defines)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// Seed of the random numbers; the same seed gives the same attack
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Further settings of the server, such as session.prove=ack; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Only cases whose name contains TEXT, such as "40 networks"
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Use 127.0.0.0/8 instead of a network namespace; attacks with forged addresses are skipped
    #[arg(long)]
    loopback: bool,

    /// Listening address of the attacked program: any in the namespace, one of 127.0.0.0/8 with --loopback
    #[arg(long, value_name = "ADDRESS")]
    at: Option<Ipv4Addr>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The settings that all attacks share.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) sandbox: Sandbox,
    pub(crate) clock: Clock,
    pub(crate) bcnet: PathBuf,
    /// Duration of each measurement.
    pub(crate) measure_time: Duration,
    /// Number of join attempts by newcomers.
    pub(crate) tries: u16,
    pub(crate) rate: Option<u32>,
    /// Only cases whose names contain this text run.
    pub(crate) case: Option<String>,
    pub(crate) seed: u64,
    /// Further settings of the server, as `KEY=VALUE`.
    pub(crate) set: Vec<String>,
}

impl Environment {
    /// Returns the rate from the command line, or `usual`.
    pub(crate) fn rate(&self, usual: u32) -> u32 {
        self.rate.unwrap_or(usual)
    }

    /// Returns whether a case of an attack is selected.
    pub(crate) fn is_selected(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|wanted| case.contains(wanted.as_str()))
    }

    /// Prints progress to standard error.
    pub(crate) fn progress(&self, attack: &str, what: &str) {
        eprintln!("{:>6.1} s  {attack}: {what}", self.clock.now().as_micros() as f64 / 1e6);
    }
}

pub(crate) fn run() -> ExitCode {
    let args = Args::parse();
    match run_attacks(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bcnet-attack: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_attacks(args: &Args) -> anyhow::Result<ExitCode> {
    if args.attacks.iter().any(|name| name == "list") {
        for Attack { name, description, .. } in ATTACKS {
            println!("{name:<18} {description}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = select_attacks(&args.attacks)?;
    let bcnet = find_program(args.bcnet.clone())?;
    let time = match args.minutes {
        Some(minutes) => Duration::from_secs(60 * minutes),
        None if args.quick => Duration::from_secs(4),
        None => Duration::from_secs(args.seconds),
    };
    let env = Environment {
        sandbox: Sandbox::enter(args.loopback, args.at)?,
        clock: Clock::start(),
        bcnet,
        measure_time: time,
        tries: if args.minutes.is_some() { 100 } else { (time.as_secs() as u16).clamp(4, 100) },
        rate: args.rate,
        case: args.case.clone(),
        seed: args.seed,
        set: args.set.clone(),
    };
    let mut outcomes = Vec::new();
    for attack in chosen {
        env.progress(attack.name, attack.description);
        let outcome = run_one(&env, attack)?;
        if !args.json {
            println!("{outcome}");
        }
        outcomes.push(outcome);
    }
    let broken: Vec<&str> = outcomes.iter().filter(|one| one.is_broken()).map(|one| one.attack).collect();
    if args.json {
        let outcomes: Vec<_> = outcomes.iter().map(AttackResult::json).collect();
        println!(
            "{}",
            json!({ "seed": args.seed, "seconds": time.as_secs(), "broken": broken, "attacks": outcomes })
        );
    } else if !broken.is_empty() {
        println!("limits exceeded: {}", broken.join(", "));
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn run_one(env: &Environment, attack: &'static Attack) -> anyhow::Result<AttackResult> {
    let result = if attack.needs_forging && !env.sandbox.can_forge() {
        Err(AttackSkipped("forged addresses need a network namespace; run without --loopback".into()))
    } else {
        Ok((attack.run)(env).with_context(|| attack.name)?)
    };
    Ok(AttackResult { attack: attack.name, result })
}

fn select_attacks(names: &[String]) -> anyhow::Result<Vec<&'static Attack>> {
    let mut chosen = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend(ATTACKS);
        } else if let Some(attack) = ATTACKS.iter().find(|attack| attack.name == name) {
            chosen.push(attack);
        } else {
            bail!("unknown attack `{name}`; `bcnet-attack list` shows all attacks");
        }
    }
    Ok(chosen)
}

/// Returns the path of the program to attack. It is absolute, because the program runs in another directory.
fn find_program(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let beside = || -> anyhow::Result<PathBuf> { Ok(std::env::current_exe()?.with_file_name("bcnet")) };
    let path = given.map_or_else(beside, Ok)?;
    path.canonicalize().with_context(|| {
        format!(
            "{}: program not found; build it with `cargo build --release -p bcnet` or pass --bcnet PATH",
            path.display()
        )
    })
}
