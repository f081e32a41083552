# Writes the passwords of docker-compose.yml: from .env, or random ones, which are kept.
set -eu
umask 227 # readable by the group, which the services share
cd /var/lib/firmq
[ -w credentials ] && [ -w grafana-credentials ] || {
    echo "this image is older than docker-compose.yml: docker compose down, docker volume rm task-queue_credentials" \
        "task-queue_grafana-credentials, docker compose up -d --build" >&2
    exit 1
}

write() {
    [ -n "$2" ] || [ ! -s "$1" ] || return 0
    rm -f "$1.new"
    printf %s "${2:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}" >"$1.new"
    mv -f "$1.new" "$1"
}

write credentials/redis-password "$REDIS_PASSWORD"
write credentials/postgres-password ""
rm -f credentials/pgpass
(umask 277 && echo "postgres:*:*:firmq:$(cat credentials/postgres-password)" >credentials/pgpass) # libpq: for its owner only
write grafana-credentials/password "$GRAFANA_PASSWORD"

[ -n "$GRAFANA_PASSWORD" ] && shown="as in .env" || shown=$(cat grafana-credentials/password)
echo "Gateway and dashboard need no sign-in while ALLOW_ANONYMOUS is true."
echo "Grafana (docker compose --profile grafana up -d): http://localhost:$GRAFANA_PORT, user admin, password $shown"
echo "Redis: docker compose exec redis redis-cli"
