// Without `validatorUrl: null`, Swagger UI would ask a server on the internet to validate the document.
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#page", deepLinking: true, validatorUrl: null });
