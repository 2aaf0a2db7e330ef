#!/usr/bin/env bash
# Make the data, check the cluster, train. Usage: ./run.sh alfworld_7b [key=value ...]
# On more than one node: start Ray first, with the same environment on every node.
set -euo pipefail
cd "$(dirname "$0")"
recipe=$1
shift
data=${recipe%%_*}
case $data in
  textcraft) suite=textcraft split=depth2 panel=depth2-heldout-panel ;;
  webshop) suite=webshop-synthetic split=train panel=validation ;;
  alfworld) suite=alfworld split=train panel=valid_seen ;;
esac

export VERL_USE_EXTERNAL_MODULES=bipace.integrations.verl.plugin
[ -f "data/$data/train.parquet" ] || python -m bipace.integrations.verl.data \
  --suite "$suite" --split "$split" --out "data/$data/train.parquet"
[ -f "data/$data/val.parquet" ] || python -m bipace.integrations.verl.data \
  --suite "$suite" --split "$panel" --out "data/$data/val.parquet"

python -m bipace.integrations.verl.preflight --config-dir . --config-name "$recipe" --dry-run "$@"
python -m verl.trainer.main_ppo --config-dir . --config-name "$recipe" "$@"
