#!/usr/bin/env bash
# Make the data, check the cluster, train. Usage: ./run.sh alfworld_7b [key=value ...]
# On more than one node: start Ray first, with the same environment on every node.
set -euo pipefail
cd "$(dirname "$0")"
recipe=$1
shift
suite=${recipe%%_*}
case $suite in
  textcraft) panel=heldout-panel ;;
  webshop) panel=validation-panel ;;
  alfworld) panel=valid_seen ;;
esac

export VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin
[ -f "data/$suite/train.parquet" ] || python -m bipace.integrations.verl.data \
  --suite "$suite" --split train --out "data/$suite/train.parquet"
[ -f "data/$suite/val.parquet" ] || python -m bipace.integrations.verl.data \
  --suite "$suite" --split "$panel" --limit 128 --out "data/$suite/val.parquet"

python -m bipace.integrations.verl.preflight --config-dir . --config-name "$recipe" --dry-run "$@"
python -m verl.trainer.main_ppo --config-dir . --config-name "$recipe" "$@"
