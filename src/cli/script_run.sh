# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash script_run.sh FOLDER SCRIPT VISIBLE COUNT NAME=VALUE… ARGUMENT…: runs SCRIPT with its ARGUMENTS in namespaces of its own, where the
# commands that start programs write down what they were given: a file FOLDER/out/call.TIME.PROCESS for each, its words with a zero byte
# behind each. COUNT says how many NAME=VALUE there are. VISIBLE is a folder that it may read. FOLDER/made has folders that are made for it, one in a line, and
# FOLDER/elsewhere paths by which it looks for files of VISIBLE. Where there are neither bubblewrap nor
# namespaces nothing is run, and FOLDER/out/started is not there.
set -u
folder=$1 script=$2 visible=$3 count=$4
shift 4
variables=("${@:1:count}")
shift "$count"
tools=$folder/bin out=$folder/out
mkdir "$tools" "$out"

# Text tools are as they are; what changes files changes those of a file system in memory.
for tool in bash sh cat grep egrep fgrep sed awk gawk mawk head tail cut tr wc sort uniq basename dirname date expr seq env printf echo true false \
  test paste tac nl rev fold column readlink realpath bc id mkdir rm cp mv ln touch chmod ls find tee mktemp xargs; do
  path=$(type -P "$tool") && cp -L "$path" "$tools/$tool"
done
for tool in sleep setpriv umount; do path=$(type -P "$tool") && cp -L "$path" "$tools/.$tool"; done

cat >"$tools/.record" <<'EOF'
#!/bin/bash
# The name of a command, and its words.
for ((i = 2; i <= $#; ++i)); do
  # Of a launcher of a shell what that starts is written down, behind the launcher's own words.
  case ${!i##*/} in
    bash | sh)
      LOCKSTEP_LAUNCHER+=$(printf '%q ' "${@:1:i-1}")
      export LOCKSTEP_LAUNCHER
      exec "${!i##*/}" "${@:i+1}"
      ;;
    *.py | --) break ;;
  esac
done
eval "launcher=(${LOCKSTEP_LAUNCHER-})"
call=$LOCKSTEP_OUT/call.${EPOCHREALTIME/[.,]/}.$$
# The configuration of DeepSpeed that the command names, as it is now: the script may have written it.
for ((i = 1; i <= $#; ++i)); do
  case ${!i} in
    --deepspeed_config=* | --deepspeed-config=*) named=${!i#*=} ;;
    --deepspeed_config | --deepspeed-config) named=$((i + 1)) && named=${!named-} ;;
    *) continue ;;
  esac
  [[ -f $named ]] && head -c 1048576 "$named" >"$call.deepspeed"
done
printf '%s\0' ${launcher[@]+"${launcher[@]}"} "$@" >"$call.part" && mv "$call.part" "$call"
EOF
cat >"$tools/.started" <<'EOF'
#!/bin/bash
# How many GPUs PyTorch sees is asked for in one line.
if [[ ${1-} == -c && ${2-} == *device_count* ]]; then
  : >>"$LOCKSTEP_OUT/gpus"
  echo "${SLURM_GPUS_ON_NODE:-8}"
  exit
fi
exec .record "${0##*/}" "$@"
EOF
cat >"$tools/.gpus" <<'EOF'
#!/bin/bash
case " $* " in
  *" -L "* | *" --list-gpus "* | *query-gpu=name* | *query-gpu=gpu_name* | *query-gpu=index* | *query-gpu=uuid*) ;;
  *) exec .record "${0##*/}" "$@" ;;
esac
: >>"$LOCKSTEP_OUT/gpus"
for ((i = 0; i < ${SLURM_GPUS_ON_NODE:-8}; ++i)); do echo "GPU $i"; done
EOF
cat >"$tools/.localhost" <<'EOF'
#!/bin/bash
# The nodes of a job, as `scontrol show hostnames` names them; hostname names this one.
if [[ ${0##*/} == hostname || ! ${SLURM_NNODES-} =~ ^[1-9][0-9]{0,4}$ ]]; then
  [[ ${0##*/} == hostname ]] || : >>"$LOCKSTEP_OUT/nodes"
  echo localhost
  exit
fi
for ((i = 0; i < SLURM_NNODES; ++i)); do echo "node$i"; done
EOF
printf '#!/bin/bash\n' >"$tools/.nothing"
# What bash reads before each script.
cat >"$tools/.start" <<'EOF'
command_not_found_handle() { .record "$@"; }
cd() { builtin cd "$@" 2>/dev/null || :; }
pushd() { builtin pushd "$@" >/dev/null 2>&1 || :; }
popd() { builtin popd "$@" >/dev/null 2>&1 || :; }
sleep() { :; }
ulimit() { :; }
EOF
cp "$folder/made" "$tools/.made"
cp "$folder/elsewhere" "$tools/.elsewhere"
chmod 755 "$tools/.record" "$tools/.started" "$tools/.gpus" "$tools/.localhost" "$tools/.nothing"
link() {
  local name
  for name in "${@:2}"; do [[ -e $tools/$name ]] || ln -s "$1" "$tools/$name"; done
}
# Of these a script may ask whether they are there, or they run by a path; all others are written down too.
link .started torchrun python python3 srun mpirun mpiexec deepspeed accelerate ray sbatch sudo nohup timeout numactl nsys setsid stdbuf nice time
link .gpus nvidia-smi
link .localhost hostname scontrol
link .nothing pip pip3 wget curl tar pkill kill killall sync sleep module conda

# A folder in the place of one that the sandbox has itself.
shown=$visible on_disk=$script
case $visible/ in
  /tmp/ | /launch/ | /out/ | /dev/* | /proc/* | /usr/* | /lib*/* | /bin/* | /sbin/*) shown=/script script=/script/${script#"$visible"/} ;;
esac
plain=(USER=user LANG=C.UTF-8 LC_ALL=C.UTF-8 HOME=/launch PATH=/usr/bin LOCKSTEP_OUT=/out "${variables[@]+"${variables[@]}"}")
# In the sandbox: the files beside the script and in its repository are there by their names, in folders that can be written to; limits; the
# script; and until those in the background have ended, but not for long.
cat >"$tools/.run" <<'EOF'
cd /launch || exit
: >/out/started
for place in "${2%/*}" "$1"; do
  for file in "$place"/*; do
    if [[ -d $file ]]; then
      mkdir -p "${file##*/}" && for inner in "$file"/*; do [[ -e ${file##*/}/${inner##*/} ]] || ln -s "$inner" "${file##*/}"; done
    elif [[ ! -e ${file##*/} ]]; then
      ln -s "$file" .
    fi
  done
done 2>/dev/null
# Folders that an earlier try found missing.
while read -r folder; do mkdir -p "$folder"; done </usr/bin/.made 2>/dev/null
# A file that is sourced by the path that the repository has on its authors' machines is the repository's own.
while read -r path; do
  tail=${path#/}
  while [[ ! -e $path && $tail == */* ]]; do
    if [[ -f $1/$tail ]]; then
      mkdir -p "${path%/*}" && ln -s "$1/$tail" "$path" && echo "$tail" >>/out/elsewhere
      break
    fi
    tail=${tail#*/}
  done
done < <(
  cat /usr/bin/.elsewhere
  grep -oE '^[[:space:]]*(source|\.)[[:space:]]+"?/[A-Za-z0-9_./+-]+' "$2" | grep -oE '/.*'
) 2>/dev/null
shift
ulimit -t 10 -f 8192 -v 2000000
BASH_ENV=/usr/bin/.start bash "$@"
status=$?
# This process, and bubblewrap's own, which is the first where there is one.
processes=$((1 + ($$ != 1)))
for ((i = 0; i < 100; ++i)); do
  set -- /proc/[0-9]*
  (($# > processes)) || break
  .sleep 0.02
done
exit "$status"
EOF

# <placeholders> that documents leave to be filled in are redirections to bash. Those of several words, which are read from no file, become
# their words; where bash refuses others they become texts, if that helps.
filled='' readable=$on_disk
if grep -qE '^[[:space:]]*[^#[:space:]](.*[^<])?<[A-Za-z]+( [A-Za-z]+)+>([[:space:]"'"'"']|$)' "$on_disk"; then
  sed -E '/^[[:space:]]*#/b; :more; s/(^|[^<])<([A-Za-z]+)(( [A-Za-z]+)+)>([[:space:]"'"'"']|$)/\1\n\2\3\n\5/; :blank; s/\n([A-Za-z_]+) ([A-Za-z_ ]*)\n/\n\1_\2\n/; t blank; s/\n([A-Za-z_]+)\n/\1/; t more' "$on_disk" >"$folder/words"
  if bash -n "$folder/words" 2>/dev/null; then filled=$folder/words readable=$filled && : >"$out/placeholders"; fi
fi
if ! bash -n "$readable" 2>/dev/null; then
  sed -E 's|^([A-Za-z_][A-Za-z0-9_]*=)([^"`$'"'"']*<[A-Za-z][^<>]*>[^"`$ '"'"']*)[[:space:]]*$|\1"\2"|' "$readable" >"$folder/filled"
  if bash -n "$folder/filled" 2>/dev/null; then filled=$folder/filled && : >"$out/placeholders"; fi
fi

if bwrap --unshare-all --ro-bind / / true 2>/dev/null; then
  binds=() hidden=()
  for place in "$visible"/.[!.]*; do
    if [[ -d $place ]]; then hidden+=(--tmpfs "$shown/${place##*/}"); elif [[ -e $place ]]; then hidden+=(--ro-bind /dev/null "$shown/${place##*/}"); fi
  done
  [[ -z $filled ]] || hidden+=(--ro-bind "$filled" "$script")
  for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
    if [[ -L $place ]]; then binds+=(--symlink "$(readlink "$place")" "$place")
    elif [[ -d $place ]]; then binds+=(--ro-bind "$place" "$place"); fi
  done
  exec env -i PATH="$PATH" bwrap --unshare-all --die-with-parent --new-session --clearenv "${binds[@]}" --ro-bind "$tools" /usr/bin \
    --symlink usr/bin /bin --symlink usr/bin /sbin --dev /dev --proc /proc --tmpfs /tmp --dir /launch --bind "$out" /out \
    --ro-bind "$visible" "$shown" "${hidden[@]+"${hidden[@]}"}" --chdir /launch env -i "${plain[@]}" bash /usr/bin/.run "$shown" "$script" "$@"
fi
[[ -e $tools/.setpriv && -e $tools/.umount ]] && type -P pivot_root mount >/dev/null || exit 0
export folder tools out visible shown filled script
# shellcheck disable=SC2016
exec unshare --user --map-root-user --mount --net --pid --fork --kill-child --ipc --uts bash -c '
  set -e
  root=$folder/root
  mkdir "$root"
  mount -t tmpfs -o size=64m tmpfs "$root"
  cd "$root"
  mkdir -p usr/bin usr/lib tmp dev proc launch out old ".$shown"
  show() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$2"; }
  for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
    if [[ -L $place ]]; then ln -s "$(readlink "$place")" ".$place"; elif [[ -d $place ]]; then mkdir -p ".$place"; show "$place" ".$place"; fi
  done
  show "$tools" usr/bin
  ln -s usr/bin bin
  ln -s usr/bin sbin
  mount --bind "$out" out
  # What the script writes beside itself stays in memory, where the kernel can lay that over the folder.
  mkdir written work
  if [[ $visible == *[,:\\]* ]] || ! mount -t overlay -o userxattr,lowerdir="$visible",upperdir=written,workdir=work overlay ".$shown" 2>/dev/null; then
    show "$visible" ".$shown"
  fi
  # What is hidden there, as .git and .ssh, is not shown.
  for place in "$visible"/.[!.]*; do
    if [[ -d $place ]]; then mount -t tmpfs -o ro tmpfs ".$shown/${place##*/}"
    elif [[ -e $place ]]; then mount --bind /dev/null ".$shown/${place##*/}"; fi
  done
  if [[ -n $filled ]]; then show "$filled" ".$script"; fi
  mount -t proc proc proc
  for file in null zero; do touch "dev/$file"; mount --bind "/dev/$file" "dev/$file"; done
  ln -s /proc/self/fd dev/fd
  for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
  pivot_root . old
  cd /
  /usr/bin/.umount -l /old
  environment=("${@:2:$1}")
  shift "$(($1 + 1))"
  # Root of these namespaces may do nothing more than anybody else.
  exec /usr/bin/.setpriv --bounding-set=-all --inh-caps=-all --no-new-privs /usr/bin/env -i "${environment[@]}" /usr/bin/bash /usr/bin/.run "$shown" "$@"
' script_run "${#plain[@]}" "${plain[@]}" "$script" "$@"
