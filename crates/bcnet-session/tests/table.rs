//! Checks that PROTOCOL.md and the dissector contain the message table. `BCNET_UPDATE=1` writes it there.

use std::fmt::Write as _;
use std::path::Path;

use bcnet_session::game::{CODES, Codes, FLAGS, Part, Species, SubsystemByte, TABLE};

#[test]
fn dissector_matches_the_table() {
    check_section("dissector/bcnet.lua", "-- <table>", "-- </table>", &lua());
}

/// S-70
#[test]
fn protocol_document_matches_the_table() {
    check_section("PROTOCOL.md", "<!-- table -->", "<!-- /table -->", &markdown());
}

#[test]
fn table_is_sorted_and_names_are_unique() {
    assert!(TABLE.is_sorted_by(|a, b| a.opcode < b.opcode));
    for (at, row) in TABLE.iter().enumerate() {
        let name = row.opcode.name().expect("a row has a name");
        assert!(TABLE[..at].iter().all(|other| other.opcode.name() != Some(name)), "{name} twice");
    }
}

/// Checks that the section of a file between two lines is `expected`.
fn check_section(file: &str, begin: &str, end: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (head, rest) =
        text.split_once(&format!("{begin}\n")).unwrap_or_else(|| panic!("{file} has no {begin}"));
    let (found, tail) = rest.split_once(end).unwrap_or_else(|| panic!("{file} has no {end}"));
    if found == expected {
        return;
    }
    assert!(
        std::env::var_os("BCNET_UPDATE").is_some(),
        "{file} differs from the message table; run the test with BCNET_UPDATE=1 to update the file"
    );
    std::fs::write(&path, format!("{head}{begin}\n{expected}{end}{tail}")).expect("cannot write the file");
}

fn lua() -> String {
    let mut lua = String::from("local OPCODES = {\n");
    for row in TABLE {
        let name = row.opcode.name().unwrap_or_default();
        let _ = writeln!(lua, "    [0x{:02X}] = \"{name}\",", row.opcode.0);
    }
    lua += "}\n-- The fields of each message: name and kind. A message may end before a field with ?.\nlocal FIELDS = {\n";
    for row in TABLE.iter().filter(|row| !row.fields.is_empty()) {
        let fields: Vec<String> = row.fields.iter().map(lua_field).collect();
        let _ = writeln!(lua, "    [0x{:02X}] = {{ {} }},", row.opcode.0, fields.join(", "));
    }
    lua += "}\n-- The names of numbers.\nlocal CODES = {\n";
    for codes in CODES {
        let _ = writeln!(lua, "    [\"{}\"] = {{ number = \"{}\", names = {{", codes.kind, codes.number);
        for (code, name) in codes.names {
            let _ = writeln!(lua, "        [0x{code:02X}] = \"{name}\",");
        }
        lua += "    } },\n";
    }
    lua += "}\n-- The names of bits. With apart = true, each bit is a separate field.\nlocal FLAGS = {\n";
    for flags in FLAGS {
        let names: Vec<String> =
            flags.names.iter().map(|(bit, name)| format!("{{ 0x{bit:02X}, \"{name}\" }}")).collect();
        let _ = writeln!(
            lua,
            "    [\"{}\"] = {{ apart = {}, names = {{ {} }} }},",
            flags.kind,
            flags.apart,
            names.join(", ")
        );
    }
    lua += "}\n-- The meaning of each subsystem byte of a species, and the number of weapon flags.\nlocal SUBSYSTEMS = {\n";
    for (species, bytes) in subsystems() {
        let weapons = weapons(&bytes);
        let _ = writeln!(
            lua,
            "    [{species}] = {{ weapons = {weapons}, bytes = \"{}\" }},",
            run_length_names(&bytes, "*", " ")
        );
    }
    lua + "}\n"
}

/// Returns the subsystem bytes of each species for which they are known.
fn subsystems() -> impl Iterator<Item = (u8, Vec<SubsystemByte>)> {
    (0..=u8::MAX).filter_map(|species| Species(species).subsystem_bytes().map(|bytes| (species, bytes)))
}

fn weapons(bytes: &[SubsystemByte]) -> u8 {
    let count = |byte: &SubsystemByte| match byte {
        SubsystemByte::WeaponBits(count) => Some(*count),
        SubsystemByte::Condition(_)
        | SubsystemByte::Repeated(_)
        | SubsystemByte::Power(_)
        | SubsystemByte::RepeatedPower(_)
        | SubsystemByte::Setting(_) => None,
    };
    bytes.iter().find_map(count).unwrap_or_default()
}

/// Returns the names, joined; a repeated name appears once, with its count.
fn run_length_names(bytes: &[SubsystemByte], times: &str, between: &str) -> String {
    let runs = bytes.chunk_by(|a, b| a.name() == b.name()).map(|run| match run {
        [one] => one.name().to_owned(),
        several => format!("{}{times}{}", several[0].name(), several.len()),
    });
    runs.collect::<Vec<_>>().join(between)
}

fn lua_field(Part { name, kind, optional }: &Part) -> String {
    format!("{{ \"{name}\", \"{kind}{}\" }}", if *optional { "?" } else { "" })
}

fn markdown() -> String {
    let mut rows = String::from(
        "| Opcode | Name | Direction | Host action | Evidence | Fields |\n|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let fields: Vec<String> = row.fields.iter().map(markdown_field).collect();
        let fields = if fields.is_empty() { "–".into() } else { fields.join("; ") };
        let name = row.opcode.name().unwrap_or_default();
        let (code, rule) = (row.opcode.0, row.opcode.rule());
        let _ = writeln!(
            rows,
            "| {code:02X} | {name} | {} | {rule} | {} | {fields} |",
            row.direction, row.evidence
        );
    }
    rows += "\n| Numbers | Type | Names |\n|---|---|---|\n";
    for Codes { kind, number, names } in CODES {
        let name = |(code, name): &(i64, &str)| match *number {
            "u32" => format!("{code:X} {name}"),
            _ => format!("{code} {name}"),
        };
        let names: Vec<String> = names.iter().map(name).collect();
        let _ = writeln!(rows, "| {kind} | {number} | {} |", names.join(", "));
    }
    rows += "\n| Species | Bytes | Subsystems |\n|---|---|---|\n";
    for (species, bytes) in subsystems() {
        let _ = writeln!(rows, "| {species} | {} | {} |", bytes.len(), run_length_names(&bytes, " × ", ", "));
    }
    rows
}

fn markdown_field(Part { name, kind, optional }: &Part) -> String {
    let flags = FLAGS.iter().find(|flags| flags.kind == *kind);
    let bits = flags.map(|flags| {
        let bits = flags.names.iter().map(|(bit, name)| format!("{bit:02X} {name}"));
        bits.collect::<Vec<_>>().join(", ")
    });
    let kind = bits.map_or_else(|| (*kind).to_owned(), |bits| format!("flags {bits}"));
    let kind = if *optional { format!("{kind} or nothing") } else { kind };
    if name.is_empty() || *name == kind { kind } else { format!("{name}: {kind}") }
}
