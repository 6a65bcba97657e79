//! What a bad file can make the reader allocate: less than its own size and 64 MiB.
//!
//! A test binary of its own, since it looks at the peak of the whole process.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use selfspec_testkit::{GgufBuilder, Value};
use selfspec_weights::{Checkpoint, Source, WeightsError};

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|l| l.strip_prefix(field)).expect("the field is there");
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Opens `path` and holds the growth of resident memory at its peak against the bound for a file of
/// `size` bytes.
fn within(path: &Path, size: usize, read: impl FnOnce(Result<Checkpoint, WeightsError>)) {
    // Sets the peak to what is resident now (proc(5), clear_refs); where that is not allowed, the
    // test sees less.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let before = status("VmHWM");
    read(Checkpoint::open(path));
    let grown = status("VmHWM") - before;
    assert!(grown < size + (64 << 20), "{grown} bytes for a file of {size}");
}

fn size(path: &Path) -> usize {
    fs::metadata(path).expect("there").len() as usize
}

#[test]
fn memory_stays_below_the_files_size_and_64_mib() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("bad.gguf");
    let error = |r: Result<Checkpoint, _>| drop(r.expect_err("refused"));

    // Counts and lengths that promise far more than is there.
    for (tensors, keys) in [(1 << 63, 0), (0, u64::MAX), (65_536, 0), (0, 65_536)] {
        GgufBuilder { tensor_count: Some(tensors), metadata_count: Some(keys), ..GgufBuilder::new() }.write(&path);
        within(&path, size(&path), error);
    }
    for elem in 0u32..=12 {
        let raw = [&elem.to_le_bytes()[..], &(1u64 << 40).to_le_bytes()].concat();
        GgufBuilder::new().metadata("a", Value::Raw(9, raw)).write(&path);
        within(&path, size(&path), error);
    }
    GgufBuilder::new().metadata("a", Value::Raw(8, (1u64 << 40).to_le_bytes().to_vec())).write(&path);
    within(&path, size(&path), error);

    // As many empty strings as are allowed, and one more.
    let strings = |n: u64| {
        let mut raw = [&8u32.to_le_bytes()[..], &n.to_le_bytes()].concat();
        raw.resize(raw.len() + n as usize * 8, 0);
        GgufBuilder::new().metadata("a", Value::Raw(9, raw))
    };
    strings((1 << 21) + 1).write(&path);
    within(&path, size(&path), error);
    strings(1 << 21).write(&path);
    within(&path, size(&path), |r| {
        let c = r.expect("valid");
        let Source::Gguf(m) = c.source() else { panic!("a GGUF file has metadata") };
        assert_eq!(m.need_strings("a").expect("strings").len(), 1 << 21);
    });

    // As many keys and tensors as are allowed, each as small as can be.
    let mut builder = GgufBuilder::new();
    builder.metadata = (0..65_536).map(|i| (format!("{i:x}"), Value::U8(0))).collect();
    builder.write(&path);
    within(&path, size(&path), |r| drop(r.expect("valid")));
    let mut builder = GgufBuilder { alignment: 8, ..GgufBuilder::new() }.metadata("general.alignment", 8u32);
    builder.tensors = (0..65_536)
        .map(|i| selfspec_testkit::GgufTensor {
            name: format!("{i:x}"),
            dims: vec![1],
            type_id: 0,
            data: vec![0; 4],
            offset: None,
        })
        .collect();
    builder.write(&path);
    within(&path, size(&path), |r| drop(r.expect("valid")));
    drop(builder);

    // Safetensors: a header as long as is allowed, of the shortest entries, of one long name, and
    // of escapes.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), "{}").expect("written");
    let path = folder.path().join("model.safetensors");
    let room = 16 << 20;
    let entry = |i: usize| format!("\"{i}\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}},");
    let entries: String = (0..room / 64).map(entry).collect();
    let escapes = format!("{{\"{}\":0}}", "\\n".repeat(room / 2 - 4));
    let name = format!("{{\"{}\":0}}", "n".repeat(room - 8));
    let shape = format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{}1]}}}}", "1,".repeat(room / 2 - 40));
    for header in [format!("{{{}}}", entries.trim_end_matches(',')), escapes, name, shape] {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        fs::write(&path, bytes).expect("written");
        within(folder.path(), size(&path), error);
    }
    // A configuration as long as is allowed, of the shortest values.
    fs::write(folder.path().join("config.json"), format!("{{\"a\":[{}0]}}", "0,".repeat((512 << 10) / 2 - 5)))
        .expect("written");
    fs::write(&path, b"\x02\0\0\0\0\0\0\0{}").expect("written");
    within(folder.path(), 512 << 10, |r| drop(r.expect("valid")));
}
