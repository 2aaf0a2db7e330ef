#!/usr/bin/env bash
# On a machine with one GPU: look, three iterations with the time of each part, then the paper's run.
#
#     examples/gpu/run.sh MODEL [PRESET] [OUT] [KEY=VALUE...]
#
# MODEL is a local Hugging Face folder (Qwen2.5-1.5B-Instruct, ...) or a fetched model (smollm2-135m); PRESET defaults to
# qwen2.5-1.5b-textcraft, OUT to runs/gpu. DEVICE=cpu tries the script itself on a machine without a GPU;
# PREFLIGHT_ONLY=1 stops before the long run. The same command again goes on with a run that was stopped.
# docs/gpu.md says what is printed and how long it should take.
set -euo pipefail

if [ $# -eq 0 ]; then
  sed -n 's/^# \{0,1\}//p' "$0" | sed 1d
  exit 2
fi
model=$1
preset=${2:-qwen2.5-1.5b-textcraft}
out=${3:-runs/gpu}
shift $(($# < 3 ? $# : 3))
settings=(--config "$preset" "actor.folder=$model" "actor.device=${DEVICE:-cuda}" "$@")

bipace doctor
if [ -e "$out/run/config.json" ]; then
  exec bipace train --resume "$out/run"
fi

echo "== three iterations of the run, and its validation before and after them"
# A preflight that was cut short is taken up again.
if [ -e "$out/preflight/config.json" ]; then
  bipace train --resume "$out/preflight"
else
  bipace train "${settings[@]}" run.iterations=3 run.validate_every=3 'env.held_out=[]' --out "$out/preflight"
fi
python "$(dirname "$0")/reckon.py" "$out/preflight" "$preset" "$@"
if [ -n "${PREFLIGHT_ONLY:-}" ]; then
  exit 0
fi

echo "== the run; stop it with Ctrl-C, go on with the same command"
exec bipace train "${settings[@]}" --out "$out/run"
