//! Checks that a schema in `schema/` is that of its type; the tests of `smbd` include this file for their own folder.

use std::{fs, path::Path};

use schemars::{JsonSchema, generate::SchemaSettings};

/// Compares a schema with its file. With `UPDATE_SCHEMAS=1` the file is written instead.
pub(crate) fn is_in_file<T: JsonSchema>(name: &str) {
    // As it is written: what is always there is required, also where it may be null.
    let generator = SchemaSettings::default().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<T>();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schema/{name}.schema.json"));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(&file, &schema).unwrap();
    }
    let text = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text == schema,
        "{} is not the schema of the type; UPDATE_SCHEMAS=1 writes it anew",
        file.display()
    );
}
