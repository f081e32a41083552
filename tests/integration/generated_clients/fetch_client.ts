import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: process.argv[2] });

type NewTask = components["schemas"]["NewTaskBody"];

async function run(task: NewTask): Promise<{ id: string; status: string }> {
  const { data } = await client.POST("/tasks", { body: task });
  const id = data!.task_id;
  const ended = await client.GET("/tasks/{task_id}/result", { params: { path: { task_id: id }, query: { wait: 30 } } });
  return { id, status: ended.data!.status };
}

const fine = await run({ type: "noop", data: null });
const failed = await run({ type: "fail", data: {}, max_retries: 0 });
const tasks = await client.GET("/tasks");
const dead = await client.GET("/dlq/failed-tasks", { params: { query: { limit: 10 } } });
const again = await client.POST("/dlq/failed-tasks/{task_id}/retry", { params: { path: { task_id: failed.id } } });
const batch = await client.POST("/tasks/batch", { body: { tasks: [{ type: "noop", data: 1 }] } });

console.log(JSON.stringify({
  completed: fine.status === "completed",
  listed: tasks.data!.items.some((each) => each.task_id === fine.id),
  dead: failed.status === "failed" && dead.data!.items.some((each) => each.task_id === failed.id),
  retried: again.data?.status === "pending",
  batch: batch.data!.accepted === 1,
}));
