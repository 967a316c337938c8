#!/usr/bin/env bash
# What authors' editors say about the catalog: check-jsonschema (PyPI) and yaml-language-server (npm), both real.
# Installs them under target/editor, once.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=target/editor
jsonschema=0.39.0
server=2.0.0
checker=$tools/venv/bin/check-jsonschema

if [[ "$("$checker" --version 2>/dev/null)" != *"$jsonschema" ]]; then
    python3 -m venv --clear "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "check-jsonschema==$jsonschema"
fi
if ! grep -q "\"version\": \"$server\"" "$tools/node_modules/yaml-language-server/package.json" 2>/dev/null; then
    mkdir -p "$tools"
    npm install --prefix "$tools" --no-audit --no-fund --silent "yaml-language-server@$server"
fi

fail() {
    echo "editors: $*" >&2
    exit 1
}

# The schema that a file's first line names; for those of tests/base, which name none, the one of their kind.
schema_of() {
    local named
    named=$(sed -n '1s/^# yaml-language-server: \$schema=//p' "$1")
    if [[ -n $named ]]; then
        echo "$(dirname "$1")/$named"
    elif [[ $1 == tests/base/models/* ]]; then
        echo schemas/model.schema.json
    elif [[ $1 == tests/base/* ]]; then
        echo "schemas/$(basename "$1" .yaml).schema.json"
    else
        fail "$1 names no schema for editors in its first line"
    fi
}

# One run of the checker for each schema.
declare -A files
while IFS= read -r file; do
    schema=$(realpath --relative-to . "$(schema_of "$file")")
    files[$schema]+="$file "
done < <(find catalog tests/base -name '*.yaml' | sort)
for schema in "${!files[@]}"; do
    # shellcheck disable=SC2086 # our file names hold no spaces
    "$checker" --quiet --schemafile "$schema" ${files[$schema]} || fail "$schema does not take ${files[$schema]}"
done

# A fault in each kind of file: what replaces what, and the field that the checker must name.
faulty=$tools/faulty.yaml
fault() {
    local file=$1 old=$2 new=$3 field=$4 said
    grep -q -- "$old" "$file" || fail "$file holds no $old"
    sed "0,/$old/s//$new/" "$file" >"$faulty"
    if said=$("$checker" --schemafile "$(schema_of "$file")" "$faulty" 2>&1); then
        fail "$new is taken in $file"
    fi
    [[ $said == *"$field"* ]] || fail "$new in $file: $field is not named in: $said"
}
fault tests/base/hardware.yaml 'backend: cuda' 'backend: cdua' backend
fault tests/base/hardware.yaml 'pcie:' 'pcei:' pcei
# This checker's YAML drops any `_` of a number, so that wrong grouping passes here; the server below sees it.
fault tests/base/transformers.yaml '1_489_821_760' '1,489,821,760' parameter_count
fault tests/base/transformers.yaml 'patch_size: \[1, 2, 2\]' 'patch_size: [1, 2]' patch_size
fault tests/base/encoders.yaml '5680910336' '-1' parameter_count
fault tests/base/encoders.yaml 'loaded_subset' 'decode_feature_multiplier' decode_feature_multiplier
fault tests/base/vaes.yaml 'latent_channels: 16' 'latent_channels: sixteen' latent_channels
fault tests/base/models/example.yaml 'memory_rules: wan' 'memory_rules: wann' memory_rules
fault tests/base/models/example.yaml 'date: 2026-11-30' 'date: 2026-13-40' date
fault tests/base/models/example.yaml 'title' 'titel' titel

node tests/editor/server.mjs "$tools/node_modules/yaml-language-server/bin/yaml-language-server"
echo "editors: $(wc -w <<<"${files[*]}") files sound, faults named, completions offered"
