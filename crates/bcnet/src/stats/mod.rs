//! `bcnet stats`: what a server has kept of its rounds.

mod output;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::{env, path};

use anyhow::{Context, anyhow, bail, ensure};
use bcnet_control::ColumnSpec;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use crate::CommandStatus;
use crate::bans::Timestamp;
use crate::config::{self, ConfigFlags, ConfigValue as _};
use crate::file::ensure_not_input;
use crate::number_format::pluralize;
use crate::scores::{
    PlayerResult, PlayerStanding, RoundResult, SECONDS_PER_DAY, ScoreQuery, ScoreStore, StandingOrder,
    SystemTotal,
};
use output::StatsTable;

#[derive(clap::Args)]
#[command(after_help = "\
A server keeps scores if its configuration has a file for them (`scores.file`). Names are what players call themselves: nobody \
checks them. What the server cannot see is not counted: points never, kills only as a guess, if `credit_kills` asks for it.

Exit codes: 0 done, 1 nobody has that name, 2 there are no scores, or they cannot be read.

Examples:
  bcnet stats
  bcnet stats players --since 30d --sort time --limit 10
  bcnet stats --file /var/lib/bcnet/scores.db
  bcnet stats rounds --format csv --limit 0 > rounds.csv
  bcnet stats forget \"Jean Luc\"")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<Command>,

    /// The file with the scores; else as the configuration says
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,

    /// The configuration; else BCNET_CONFIG, else bcnet.toml if it exists
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// Only since this day (in UTC), or the last days: 2026-11-16, or 30d
    #[arg(long, value_name = "DAY", global = true, value_parser = since)]
    since: Option<i64>,

    /// How many rows; 0 for all
    #[arg(long, value_name = "ROWS", global = true, default_value_t = 20)]
    limit: u32,

    /// How to print it. Parquet needs --output, and a program that was built with the feature `parquet`
    #[arg(long, value_name = "FORMAT", global = true, value_enum, default_value_t = StatsFormat::Table)]
    format: StatsFormat,

    /// Write it to this file
    #[arg(long, value_name = "OUT", global = true)]
    output: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Players with all their rounds together
    Players {
        /// What comes first: the most of this
        #[arg(long, value_enum, default_value_t = StandingOrder::Points)]
        sort: StandingOrder,
    },
    /// Rounds, the latest first
    Rounds,
    /// Systems, the most played first
    Systems,
    /// Delete all that is known of a player
    ///
    /// Rounds stay, without it. Logs and captures are files of their own, and may have the name as well.
    Forget {
        /// What the player calls itself, letter for letter
        name: String,

        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StatsFormat {
    Table,
    Csv,
    Json,
    Parquet,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let file = match &args.file {
        Some(file) => file.clone(),
        None => configured_file(args.config.clone())?,
    };
    if let Some(out) = &args.output {
        ensure_not_input(out, std::slice::from_ref(&file), "--output")?;
    }
    let range = ScoreQuery { since: args.since, limit: (args.limit > 0).then_some(args.limit) };
    let name = || file.display().to_string();
    let sheet = match args.what.as_ref().unwrap_or(&Command::Players { sort: StandingOrder::Points }) {
        Command::Forget { name, yes } => return forget(&mut ScoreStore::open_existing(&file)?, name, *yes),
        Command::Players { sort } => {
            players_table(&ScoreStore::open_read_only(&file)?.standings(range, *sort).with_context(name)?)
        }
        Command::Rounds => {
            rounds_table(&ScoreStore::open_read_only(&file)?.rounds(range).with_context(name)?)
        }
        Command::Systems => {
            systems_table(&ScoreStore::open_read_only(&file)?.systems(range).with_context(name)?)
        }
    };
    write_table(&sheet, args)?;
    Ok(CommandStatus::Clean)
}

/// Returns where the configuration has the scores.
fn configured_file(config: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let loaded = config::load(&ConfigFlags { config, ..ConfigFlags::default() }, env::vars_os())
        .context("which file has the scores is not known; name it with --file")?;
    let place = loaded.file.as_deref().map(|file| path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    let place = place.map_or_else(|| "no configuration was found".into(), |file| file.display().to_string());
    loaded.settings.scores.file.ok_or_else(|| {
        anyhow!(
            "{place}: no `scores.file`, so the server keeps no scores; set it, or name a file with --file"
        )
    })
}

fn write_table(sheet: &StatsTable, args: &Args) -> anyhow::Result<()> {
    if args.format == StatsFormat::Parquet {
        let path =
            args.output.as_deref().context("--format parquet: name the file to write with --output")?;
        return output::parquet(sheet, path).with_context(|| path.display().to_string());
    }
    let mut out: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
    };
    match args.format {
        StatsFormat::Csv => output::csv(sheet, &mut out)?,
        StatsFormat::Json => output::json(sheet, &mut out)?,
        StatsFormat::Table | StatsFormat::Parquet => out.write_all(output::table(sheet).as_bytes())?,
    }
    Ok(out.flush()?)
}

fn forget(store: &mut ScoreStore, name: &str, yes: bool) -> anyhow::Result<CommandStatus> {
    let path = store.path().display().to_string();
    if !yes {
        ensure!(
            io::stdin().is_terminal(),
            "this deletes what is known of a player; say --yes if it is meant"
        );
        print!("Delete all that {path} has of {name:?}, for good? [y/N] ");
        io::stdout().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "yes") {
            bail!("nothing was deleted");
        }
    }
    let forgotten = store.delete_player(name).with_context(|| path.clone())?;
    // Whoever is not known may be so because of an earlier try, of which something was left.
    store.compact().with_context(|| {
        format!("{path}: the file could not be written anew, so something of {name:?} may be left in it; try it again")
    })?;
    let Some(rounds) = forgotten else {
        eprintln!("bcnet: {path}: nobody is called {name:?}; names are compared letter for letter");
        return Ok(CommandStatus::Findings);
    };
    println!("{name:?} is deleted from {}", pluralize(rounds.unsigned_abs(), "round"));
    Ok(CommandStatus::Clean)
}

fn players_table(standings: &[PlayerStanding]) -> StatsTable {
    let row = |(standing, place): (&PlayerStanding, usize)| {
        let PlayerStanding { rounds, last_played: last, score } = standing;
        let PlayerResult { name, seconds, points, kills, deaths } = score;
        json!({
            "place": place, "name": name, "points": points, "kills": kills, "deaths": deaths, "rounds": rounds,
            "played_s": seconds, "last": timestamp(*last),
        })
    };
    let rows = standings.iter().zip(1..).map(row).collect();
    StatsTable { key: "players", columns: PLAYER_COLUMNS, rows, empty_text: "nobody has played" }
}

fn rounds_table(rounds: &[RoundResult]) -> StatsTable {
    let row = |round: &RoundResult| {
        let players = round.players.iter().map(|player| player.name.as_str());
        json!({
            "ended": timestamp(round.ended), "session": round.session, "port": round.port, "round": round.number,
            "system": round.system, "duration_s": round.seconds, "reason": round.reason,
            "players": players.collect::<Vec<_>>(),
        })
    };
    let rows = rounds.iter().map(row).collect();
    StatsTable { key: "rounds", columns: ROUND_COLUMNS, rows, empty_text: "no rounds" }
}

fn systems_table(systems: &[SystemTotal]) -> StatsTable {
    let row = |SystemTotal { system, rounds, seconds, players }: &SystemTotal| json!({ "system": system, "rounds": rounds, "played_s": seconds, "participants": players });
    let rows = systems.iter().map(row).collect();
    StatsTable { key: "systems", columns: SYSTEM_COLUMNS, rows, empty_text: "no rounds" }
}

fn timestamp(seconds: i64) -> Value {
    Timestamp(seconds.try_into().unwrap_or(0)).to_string().into()
}

/// Reads a day, as days since 1970.
fn since(text: &str) -> Result<i64, String> {
    if let Ok(moment) = Timestamp::from_text(&format!("{text}T00:00:00Z")) {
        return Ok(moment.0.cast_signed() / SECONDS_PER_DAY);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let days = days.ok_or("expected a day such as 2026-11-16, or a number of days such as 30d")?;
    Ok(wall_now().as_secs().cast_signed() / SECONDS_PER_DAY - i64::from(days))
}

const PLAYER_COLUMNS: &[ColumnSpec] = &[
    ("#", "place"),
    ("NAME", "name"),
    ("POINTS", "points"),
    ("KILLS", "kills"),
    ("DEATHS", "deaths"),
    ("ROUNDS", "rounds"),
    ("TIME", "played_s"),
    ("LAST", "last"),
];
const ROUND_COLUMNS: &[ColumnSpec] = &[
    ("ENDED", "ended"),
    ("SESSION", "session"),
    ("PORT", "port"),
    ("ROUND", "round"),
    ("SYSTEM", "system"),
    ("TIME", "duration_s"),
    ("REASON", "reason"),
    ("PLAYERS", "players"),
];
const SYSTEM_COLUMNS: &[ColumnSpec] =
    &[("SYSTEM", "system"), ("ROUNDS", "rounds"), ("TIME", "played_s"), ("PLAYERS", "participants")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_accepts_a_date_or_a_number_of_days() {
        assert_eq!(since("1970-01-02"), Ok(1));
        assert_eq!(since("2026-11-16"), Ok(20_773));
        let today = wall_now().as_secs().cast_signed() / SECONDS_PER_DAY;
        assert!(since("30d").is_ok_and(|day| (today - 30..=today - 29).contains(&day)));
        for text in ["", "d", "30", "-1d", "2026-11-16T12:00:00Z", "yesterday", "99999999999d"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
